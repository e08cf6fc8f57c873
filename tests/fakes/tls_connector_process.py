"""A TLS connector process, the endpoints behind it and a client in place of NGINX."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography import x509

from fakes import patience
from fakes.authority import Authority
from gatehouse.sidecars.base import control
from gatehouse.sidecars.base.san_match import SubjectAltName
from gatehouse.sidecars.tls_connector import config
from gatehouse.sidecars.tls_connector.config import Connector

SERVER_NAME = "front.internal"
WANTED = (SubjectAltName("dns", "real.example"), SubjectAltName("uri", "spiffe://mesh/real"))
REAL = x509.UniformResourceIdentifier("spiffe://mesh/real")


class Endpoint:
    """A TLS server in threads, so that it can do what asyncio's cannot, such as half-close."""

    def __init__(self, context: ssl.SSLContext, serve: Callable[[ssl.SSLSocket], None]) -> None:
        self.names: list[str | None] = []
        self.failures: list[str] = []
        self.ended = threading.Semaphore(0)
        context.sni_callback = lambda _socket, name, _context: self.names.append(name)
        self._context, self._serve = context, serve
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                threading.Thread(target=self._one, args=(accepted,), daemon=True).start()

    def _one(self, accepted: socket.socket) -> None:
        try:
            with self._context.wrap_socket(accepted, server_side=True) as wrapped:
                self._serve(wrapped)
        except OSError as error:
            self.failures.append(str(error))
        finally:
            self.ended.release()

    def close(self) -> None:
        # Only a shutdown wakes the thread that waits for connections.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def echo(connection: ssl.SSLSocket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


class ConnectorProcess:
    """A connector as the agent runs it."""

    def __init__(self, home: Path, linger: float) -> None:
        self.home = home
        self.directory = home / "connectors"
        self.directory.mkdir()
        self._count = 0
        with (home / "connector.log").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gatehouse.sidecars", "tls_connector",
                 str(self.directory), str(linger)],
                stderr=output,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return (self.home / "connector.log").read_text()

    def configuration(self, *connectors: Connector) -> Path:
        """Write one as a generation on disk is; ``trust`` and others are absolute here."""
        self._count += 1
        directory = self.home / "generations" / str(self._count)
        (directory / "gatehouse").mkdir(parents=True)
        (directory / config.CONNECTORS_FILE).write_bytes(config.encode_connectors(connectors))
        return directory

    async def serve(self, *configurations: Path) -> str:
        async with patience.limit():
            while True:
                with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                    return await control.send_request(self.directory, configurations)
                await patience.pause()

    async def listen(self, *connectors: Connector) -> None:
        assert await self.serve(self.configuration(*connectors)) == ""

    async def connect(
        self, name: str = "a.sock"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.directory / name)

    async def exchange(self, data: bytes = b"hello", name: str = "a.sock") -> bytes:
        """Send data and an end of stream, unlike NGINX. Return the whole response."""
        reader, writer = await self.connect(name)
        try:
            writer.write(data)
            writer.write_eof()
            return await asyncio.wait_for(reader.read(), patience.SECONDS)
        except ConnectionError:
            return b""
        finally:
            writer.close()


@contextlib.contextmanager
def running(home: Path, linger: float) -> Iterator[ConnectorProcess]:
    connector = ConnectorProcess(home, linger)
    yield connector
    connector.process.send_signal(signal.SIGKILL)
    connector.process.wait()


def connector_to(endpoint: Endpoint | int, authority: Authority, **more: str) -> Connector:
    port = endpoint if isinstance(endpoint, int) else endpoint.port
    return Connector(
        socket=more.pop("socket", "a.sock"),
        cluster="c-shop-app-443",
        address="127.0.0.1",
        port=port,
        server_name=SERVER_NAME,
        names=WANTED,
        trust=str(authority.file),
        **more,
    )
