"""Listening sockets: one per endpoint, open while any NGINX worker may use it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gatehouse.sidecars.base.context_cache import ContextCache
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.service import InvalidConfigError
from gatehouse.sidecars.tls_connector import config
from gatehouse.sidecars.tls_connector.config import Connector
from gatehouse.sidecars.tls_connector.last_handshake import LastHandshake
from gatehouse.sidecars.tls_connector.relay import DownstreamConnection, RelayTarget

_BACKLOG = 4096
"""Length of the accept queue. If it is full, NGINX's connection fails at once."""

POLL_SECONDS = 30.0


class _Socket:
    """A listening socket. Its endpoint never changes; the content of its files may."""

    def __init__(self, target: RelayTarget, path: Path) -> None:
        self.target = target
        self.handshake = LastHandshake(path)
        self.server: asyncio.Server | None = None
        self.close_timer: asyncio.TimerHandle | None = None


class Listeners:
    """The sockets in one directory and their connections."""

    def __init__(self, directory: Path, linger: float, failures: FailureLog) -> None:
        """``linger`` is the time in seconds for which an unused socket stays open."""
        self.idle = asyncio.Event()
        """Set while there is no socket and no connection."""
        self._directory = directory
        self._linger = linger
        self._failures = failures
        self._sockets: dict[str, _Socket] = {}
        self._contexts = ContextCache()
        self._relays: set[DownstreamConnection] = set()

    async def serve(self, configurations: Sequence[Path]) -> None:
        """Listen on the sockets of ``configurations``, and close others after the linger time.

        All or nothing: raises InvalidConfigError without applying any change. If two configurations
        define the same socket, the last one is used.
        """
        desired = {
            target.connector.socket: target
            for configuration in configurations
            for target in _targets(configuration, self._contexts)
        }
        self._contexts.forget_unused()
        opened: list[str] = []
        try:
            for name, target in desired.items():
                if name not in self._sockets:
                    await self._open(name, target)
                    opened.append(name)
        except OSError as error:
            for name in opened:
                self._close(name)
            raise InvalidConfigError(f"{self._directory / name}: {error.strerror}") from error
        for name, socket in self._sockets.items():
            if name in desired:
                socket.target = desired[name]
                self._cancel_close(socket)
            elif socket.close_timer is None:
                loop = asyncio.get_running_loop()
                socket.close_timer = loop.call_later(self._linger, self._close, name)
        self._update_idle()

    async def _open(self, name: str, target: RelayTarget) -> None:
        path = self._directory / name
        socket = _Socket(target, path)
        path.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        socket.server = await loop.create_unix_server(
            lambda: self._accept(socket), str(path), backlog=_BACKLOG
        )
        self._sockets[name] = socket

    def _accept(self, socket: _Socket) -> DownstreamConnection:
        relay = DownstreamConnection(
            socket.target, self._failures, self._remove, socket.handshake.record
        )
        self._relays.add(relay)
        self.idle.clear()
        return relay

    def _remove(self, relay: DownstreamConnection) -> None:
        self._relays.discard(relay)
        self._update_idle()

    def _close(self, name: str) -> None:
        socket = self._sockets.pop(name)
        self._cancel_close(socket)
        if socket.server is not None:
            socket.server.close()
        (self._directory / name).unlink(missing_ok=True)
        socket.handshake.record(None)
        self._update_idle()

    @staticmethod
    def _cancel_close(socket: _Socket) -> None:
        if socket.close_timer is not None:
            socket.close_timer.cancel()
            socket.close_timer = None

    def _update_idle(self) -> None:
        if self._sockets or self._relays:
            self.idle.clear()
        else:
            self.idle.set()

    async def housekeeping(self) -> None:
        """Periodically abort connections that NGINX left and the endpoint does not read, until
        cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for relay in tuple(self._relays):
                relay.abort_if_stalled()

    async def drain(self) -> None:
        """Stop listening, and wait for connections for at most the linger time."""
        for name in tuple(self._sockets):
            self._close(name)
        try:
            async with asyncio.timeout(self._linger):
                await self.idle.wait()
        except TimeoutError:
            for relay in tuple(self._relays):
                relay.abort()


def _targets(configuration: Path, cache: ContextCache) -> list[RelayTarget]:
    try:
        connectors = config.read_connectors(configuration)
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidConfigError(f"{config.CONNECTORS_FILE}: {error}") from error
    # Endpoints of one cluster share a context, so its files are read once.
    contexts: dict[tuple[str, str, str], ssl.SSLContext] = {}
    targets = []
    for connector in connectors:
        key = (connector.trust, connector.certificate, connector.alpn)
        if key not in contexts:
            contexts[key] = _context(configuration, connector, cache)
        targets.append(RelayTarget(connector, contexts[key]))
    return targets


def _context(configuration: Path, connector: Connector, cache: ContextCache) -> ssl.SSLContext:
    path = connector.trust

    def load() -> ssl.SSLContext:
        nonlocal path
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The chain is verified here, the names after the handshake.
        context.check_hostname = False
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        path = connector.trust
        context.load_verify_locations(configuration / path)
        if connector.certificate:
            path = connector.certificate
            context.load_cert_chain(configuration / path, configuration / connector.key)
        if connector.alpn:
            context.set_alpn_protocols([connector.alpn])
        return context

    contents = [connector.alpn.encode()]
    files = (connector.trust, connector.certificate, connector.key)
    try:
        for path in files if connector.certificate else files[:1]:
            contents.append((configuration / path).read_bytes())
        return cache.get(contents, load)
    except OSError as error:
        raise InvalidConfigError(
            f"cluster {connector.cluster}: {path}: {error.strerror}"
        ) from error
