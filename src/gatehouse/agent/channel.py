"""gRPC channel to the control plane and the token sent on it."""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio

from gatehouse.agent import system_trust
from gatehouse.agent.options import AgentOptions

_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    # Maximum time without a TCP acknowledgement of sent bytes. If a middlebox acknowledges bytes
    # and loses them, only the ping below detects it. The ping response waits behind all data in
    # flight, so a link of 10 kB/s needs 60 s.
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 60_000),
    # Without this, windows grow until a slow link has minutes of data in flight.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", -1),
    # Without this, a new channel may reuse a connection that was verified with an old CA.
    ("grpc.use_local_subchannel_pool", 1),
)


class Token:
    """A bearer token that never changes, or one from a file that the kubelet replaces."""

    def __init__(self, path: Path | None, fixed: str = "") -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._text = fixed

    def read(self) -> str:
        """Return the current token. Raises OSError if the file cannot be read or is invalid."""
        if self._path is None:
            return self._text
        stat = self._path.stat()
        if self._stamp != (stat.st_mtime_ns, stat.st_ino):
            content = self._path.read_bytes().strip()
            if not content or any(not 0x20 < byte < 0x7F for byte in content):
                raise OSError(f"{self._path}: no valid token in the file")
            self._text = content.decode("ascii")
            self._stamp = (stat.st_mtime_ns, stat.st_ino)
        return self._text


def configured_token(options: AgentOptions) -> Token | None:
    """Return the token of the options, or None if they have none."""
    if options.token_path is None and not options.token:
        return None
    return Token(options.token_path, options.token)


def _credentials(options: AgentOptions) -> grpc.ChannelCredentials:
    """Return TLS credentials from the CA, key and certificate files. Raises OSError."""
    ca = options.ca or system_trust.system_bundle()
    return grpc.ssl_channel_credentials(
        ca.read_bytes() if ca else None,
        options.key.read_bytes() if options.key else None,
        options.cert.read_bytes() if options.cert else None,
    )


def open_channel(options: AgentOptions) -> grpc.aio.Channel:
    """Return a channel, which connects at its first call. Raises OSError."""
    target = f"{options.server_host}:{options.server_port}"
    if not options.tls:
        return grpc.aio.insecure_channel(target, options=_OPTIONS)
    name = options.server_name or options.server_host
    return grpc.aio.secure_channel(
        target,
        _credentials(options),
        options=(*_OPTIONS, ("grpc.ssl_target_name_override", name)),
    )
