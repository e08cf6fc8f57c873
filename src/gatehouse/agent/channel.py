"""The channel to the control plane, and the token that is shown on it."""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio

from gatehouse.agent import system_trust
from gatehouse.agent.options import Options

_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    # How long bytes may stay without a TCP acknowledgement. What a middlebox acknowledges and
    # loses is noticed by the ping alone: its answer waits behind whatever is on its way, so that a
    # line of 10 kB/s needs these 60 s.
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 60_000),
    # Else windows grow until minutes of a slow line are on their way.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", -1),
    # Else a new channel may get an old connection, made with an old CA.
    ("grpc.use_local_subchannel_pool", 1),
)


class Token:
    """The token: in a file, which the kubelet replaces now and then, or one that never changes."""

    def __init__(self, path: Path | None, fixed: str = "") -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._text = fixed

    def read(self) -> str:
        """Give the present token; raises OSError."""
        if self._path is None:
            return self._text
        stat = self._path.stat()
        if self._stamp != (stat.st_mtime_ns, stat.st_ino):
            content = self._path.read_bytes().strip()
            if not content or any(not 0x20 < each < 0x7F for each in content):
                raise OSError(f"{self._path} has no token in it")
            self._text = content.decode("ascii")
            self._stamp = (stat.st_mtime_ns, stat.st_ino)
        return self._text


def _credentials(options: Options) -> grpc.ChannelCredentials:
    """Read what the server is judged by, and what is shown to it; raises OSError."""
    trusted = options.ca or system_trust.bundle()
    return grpc.ssl_channel_credentials(
        trusted.read_bytes() if trusted else None,
        options.key.read_bytes() if options.key else None,
        options.cert.read_bytes() if options.cert else None,
    )


def open_channel(options: Options) -> grpc.aio.Channel:
    """Make a channel, which is dialled at its first call; raises OSError."""
    target = f"{options.server_host}:{options.server_port}"
    if not options.tls:
        return grpc.aio.insecure_channel(target, options=_OPTIONS)
    name = options.server_name or options.server_host
    return grpc.aio.secure_channel(
        target,
        _credentials(options),
        options=(*_OPTIONS, ("grpc.ssl_target_name_override", name)),
    )
