"""Listening sockets: one per endpoint, open while any NGINX worker may use it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gatehouse.sidecars.base.context_cache import ClientTlsFiles, ContextCache, client_context
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.service import InvalidConfigError
from gatehouse.sidecars.base.sockets import ACCEPT_QUEUE_LENGTH, SocketTable
from gatehouse.sidecars.tls_connector import config
from gatehouse.sidecars.tls_connector.last_handshake import LastHandshake
from gatehouse.sidecars.tls_connector.relay import DownstreamConnection, RelayTarget

POLL_SECONDS = 30.0


class _Socket:
    """A listening socket. Its endpoint never changes; the content of its files may."""

    def __init__(
        self,
        target: RelayTarget,
        path: Path,
        failures: FailureLog,
        relays: set[DownstreamConnection],
    ) -> None:
        self._target, self._failures = target, failures
        self._handshake = LastHandshake(path)
        self._all_relays = relays
        self._relays: set[DownstreamConnection] = set()
        self._unused = asyncio.Event()
        self._unused.set()
        self.server: asyncio.Server | None = None

    def accept(self) -> DownstreamConnection:
        """Return the relay of a new connection."""
        relay = DownstreamConnection(
            self._target, self._failures, self._remove, self._handshake.record
        )
        self._relays.add(relay)
        self._all_relays.add(relay)
        self._unused.clear()
        return relay

    def _remove(self, relay: DownstreamConnection) -> None:
        self._all_relays.discard(relay)
        self._relays.discard(relay)
        if not self._relays:
            self._unused.set()

    def configure(self, target: RelayTarget) -> None:
        """Serve a target from now on."""
        self._target = target

    async def close(self) -> None:
        """Accept no further connections, and wait until those that are open have ended."""
        if self.server is not None:
            self.server.close()
        self._handshake.record(None)
        await self._unused.wait()


class Listeners:
    """The sockets in one directory and their connections."""

    def __init__(self, directory: Path, linger: float, failures: FailureLog) -> None:
        """``linger`` is the time in seconds for which an unused socket stays open."""
        self._linger, self._failures = linger, failures
        self._sockets = SocketTable(directory, linger, self._listen)
        self.idle = self._sockets.idle
        """Set while there is no socket and no connection."""
        self._contexts = ContextCache()
        self._relays: set[DownstreamConnection] = set()

    async def serve(self, configurations: Sequence[Path]) -> None:
        """Listen on the sockets of ``configurations``, and close others after the linger time.

        All or nothing: raises InvalidConfigError without applying any change. If two configurations
        define the same socket, the last one is used.
        """
        targets = {
            target.connector.socket: target
            for configuration in configurations
            for target in _targets(configuration, self._contexts)
        }
        self._contexts.forget_unused()
        await self._sockets.serve(targets)

    async def _listen(self, path: Path, target: RelayTarget) -> _Socket:
        socket = _Socket(target, path, self._failures, self._relays)
        loop = asyncio.get_running_loop()
        socket.server = await loop.create_unix_server(
            socket.accept, str(path), backlog=ACCEPT_QUEUE_LENGTH
        )
        return socket

    async def housekeeping(self) -> None:
        """Periodically abort connections that NGINX left and the endpoint does not read, until
        cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for relay in tuple(self._relays):
                relay.abort_if_stalled()

    async def drain(self) -> None:
        """Stop listening, and wait for connections for at most the linger time."""
        drained = asyncio.create_task(self._sockets.drain())
        await asyncio.wait([drained], timeout=self._linger)
        for relay in tuple(self._relays):
            relay.abort()
        await drained


def _targets(configuration: Path, cache: ContextCache) -> list[RelayTarget]:
    try:
        connectors = config.read_connectors(configuration)
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidConfigError(f"{config.CONNECTORS_FILE}: {error}") from error
    # Endpoints of one cluster share a context, so its files are read once.
    contexts: dict[tuple[ClientTlsFiles, str], ssl.SSLContext] = {}
    targets = []
    for connector in connectors:
        files = ClientTlsFiles(connector.trust, connector.certificate, connector.key)
        if (files, connector.alpn) not in contexts:
            contexts[files, connector.alpn] = client_context(
                cache, configuration, f"cluster {connector.cluster}", files, connector.alpn
            )
        targets.append(RelayTarget(connector, contexts[files, connector.alpn]))
    return targets
