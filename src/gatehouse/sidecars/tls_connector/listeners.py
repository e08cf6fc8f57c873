"""The sockets: one per endpoint, open while any worker of NGINX may use it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.service import RefusedError
from gatehouse.sidecars.tls_connector import config
from gatehouse.sidecars.tls_connector.config import Connector
from gatehouse.sidecars.tls_connector.relay import DownstreamConnection, Target

BACKLOG = 4096
"""Connections not taken yet; with a full one NGINX is refused at once."""

POLL_SECONDS = 30.0


class _Socket:
    """One that is listened on. Its endpoint never changes, files of the same name may."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.server: asyncio.Server | None = None
        self.leaving: asyncio.TimerHandle | None = None


class Listeners:
    """The sockets in one directory, and the connections that came by them."""

    def __init__(self, directory: Path, linger: float, failures: FailureLog) -> None:
        """``linger``: seconds for which a socket is open after it is no longer asked for."""
        self.idle = asyncio.Event()
        """Set while there is neither a socket nor a connection."""
        self._directory = directory
        self._linger = linger
        self._failures = failures
        self._sockets: dict[str, _Socket] = {}
        self._relays: set[DownstreamConnection] = set()

    async def serve(self, configurations: Sequence[Path]) -> None:
        """Listen for what ``configurations`` describe, and in a while for nothing else.

        All of it or, raising RefusedError, nothing. Where two describe one socket the last counts.
        """
        wanted = {
            target.connector.socket: target
            for configuration in configurations
            for target in _targets(configuration)
        }
        opened: list[str] = []
        try:
            for name, target in wanted.items():
                if name not in self._sockets:
                    await self._open(name, target)
                    opened.append(name)
        except OSError as error:
            for name in opened:
                self._close(name)
            raise RefusedError(f"{self._directory / name}: {error.strerror}") from error
        for name, socket in self._sockets.items():
            if name in wanted:
                socket.target = wanted[name]
                self._stay(socket)
            elif socket.leaving is None:
                loop = asyncio.get_running_loop()
                socket.leaving = loop.call_later(self._linger, self._close, name)
        self._note()

    async def _open(self, name: str, target: Target) -> None:
        socket = _Socket(target)
        path = self._directory / name
        path.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        socket.server = await loop.create_unix_server(
            lambda: self._accept(socket), str(path), backlog=BACKLOG
        )
        self._sockets[name] = socket

    def _accept(self, socket: _Socket) -> DownstreamConnection:
        relay = DownstreamConnection(socket.target, self._failures, self._forget)
        self._relays.add(relay)
        self.idle.clear()
        return relay

    def _forget(self, relay: DownstreamConnection) -> None:
        self._relays.discard(relay)
        self._note()

    def _close(self, name: str) -> None:
        socket = self._sockets.pop(name)
        self._stay(socket)
        if socket.server is not None:
            socket.server.close()
        (self._directory / name).unlink(missing_ok=True)
        self._note()

    @staticmethod
    def _stay(socket: _Socket) -> None:
        if socket.leaving is not None:
            socket.leaving.cancel()
            socket.leaving = None

    def _note(self) -> None:
        if self._sockets or self._relays:
            self.idle.clear()
        else:
            self.idle.set()

    async def housekeeping(self) -> None:
        """Now and then end connections that NGINX left and nobody takes from, until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for relay in tuple(self._relays):
                relay.look()

    async def drain(self) -> None:
        """Listen no more, and let connections finish for as long as sockets would linger."""
        for name in tuple(self._sockets):
            self._close(name)
        try:
            await asyncio.wait_for(self.idle.wait(), self._linger)
        except TimeoutError:
            for relay in tuple(self._relays):
                relay.abort()


def _targets(configuration: Path) -> list[Target]:
    try:
        connectors = config.read(configuration)
    except (OSError, msgspec.MsgspecError) as error:
        raise RefusedError(f"{config.FILE} cannot be read: {error}") from error
    # Endpoints of one cluster share theirs: reading authorities takes milliseconds.
    contexts: dict[tuple[str, str, str], ssl.SSLContext] = {}
    targets = []
    for connector in connectors:
        key = (connector.trust, connector.certificate, connector.alpn)
        if key not in contexts:
            contexts[key] = _context(configuration, connector)
        targets.append(Target(connector, contexts[key]))
    return targets


def _context(configuration: Path, connector: Connector) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The chain is checked here, the names once the handshake is done.
    made.check_hostname = False
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION
    where = connector.trust
    try:
        made.load_verify_locations(configuration / connector.trust)
        if connector.certificate:
            where = connector.certificate
            made.load_cert_chain(
                configuration / connector.certificate, configuration / connector.key
            )
    except OSError as error:
        raise RefusedError(f"cluster {connector.cluster}: {where}: {error.strerror}") from error
    if connector.alpn:
        made.set_alpn_protocols([connector.alpn])
    return made
