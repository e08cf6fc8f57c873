"""A closed client leaves no connection open, whatever its API server does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import uvloop

from fakes import patience
from fakes.kube_fake_api import config_map, line
from fakes.kube_test_pki import Authority
from gatehouse.apis.resources import CONFIG_MAPS
from gatehouse.kube import client as kube
from gatehouse.kube import sockets
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken

WATCHES = 3


class SilentServer:
    """A server that answers each request with one event of a watch, and reads nothing more."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.accepted: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                if self._context:
                    connection = self._context.wrap_socket(connection, server_side=True)
                self.accepted.append(connection)
                connection.recv(65536)
                event = line("ADDED", config_map("a", 1))
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(event), event)
                )

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for connection in (self._listener, *self.accepted):
            connection.close()

    def clients(self) -> int:
        """Return how many open sockets are connected to the server."""
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        rows = [row.split() for row in lines]
        # A closed one, which the kernel keeps for a while, has no inode.
        return sum(row[2].endswith(f":{self.port:04X}") and row[9] != "0" for row in rows)


@pytest.fixture(params=["https", "http"])
def server(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[SilentServer, kube.Client]]:
    authority, context = Authority(), None
    if request.param == "https":
        cert, key = authority.issue("server", host="localhost")
        (tmp_path / "pair.pem").write_bytes(cert + key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tmp_path / "pair.pem")
    silent = SilentServer(context)
    url = f"{request.param}://127.0.0.1:{silent.port}"
    name = "localhost" if context else ""
    try:
        yield (
            silent,
            kube.Client(Configuration(url, StaticToken(), ca=authority.pem, server_name=name)),
        )
    finally:
        silent.close()


@contextlib.asynccontextmanager
async def watching(client: kube.Client) -> AsyncIterator[None]:
    batches = client.watch_batches(CONFIG_MAPS, resource_version="1")
    async with contextlib.aclosing(batches):
        await anext(batches)
        yield


async def test_closed_client_has_closed_connections_of_ended_watches(
    server: tuple[SilentServer, kube.Client],
) -> None:
    silent, client = server
    async with client:
        for _ in range(WATCHES):
            async with watching(client):
                pass
        assert len(silent.accepted) == WATCHES
    assert silent.clients() == 0


async def test_closed_client_has_closed_connections_of_running_watches_and_requests(
    server: tuple[SilentServer, kube.Client],
) -> None:
    silent, client = server
    async with contextlib.AsyncExitStack() as watches:
        async with client:
            for _ in range(WATCHES):
                await watches.enter_async_context(watching(client))
            request = asyncio.create_task(client.get(CONFIG_MAPS, "a", "default"))
            while len(silent.accepted) <= WATCHES:
                await asyncio.sleep(0)
            assert silent.clients() > WATCHES
        assert silent.clients() == 0
    with pytest.raises(kube.Unavailable):
        await request


async def test_closed_client_has_closed_connections_of_cancelled_requests(
    server: tuple[SilentServer, kube.Client],
) -> None:
    silent, client = server
    async with client:
        requests = [asyncio.create_task(client.get(CONFIG_MAPS, "a", "b")) for _ in range(WATCHES)]
        while len(silent.accepted) < WATCHES:
            await asyncio.sleep(0)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
    assert silent.clients() == 0


def test_client_is_closed_at_once_with_the_event_loop_of_the_programs(
    server: tuple[SilentServer, kube.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of the wait is longer than the test may take."""
    monkeypatch.setattr(sockets, "CLOSE_SECONDS", 3600.0)
    silent, client = server

    async def watch() -> None:
        async with patience.limit(), client:
            for _ in range(WATCHES):
                async with watching(client):
                    pass
            assert len(silent.accepted) == WATCHES
        assert silent.clients() == 0

    uvloop.run(watch())
