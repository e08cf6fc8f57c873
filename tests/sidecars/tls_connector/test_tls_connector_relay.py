"""Steps of one relayed connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509

from fakes.authority import Authority
from fakes.tls_connector_process import connector_to
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.tls_connector.last_handshake import UntrustedError
from gatehouse.sidecars.tls_connector.relay import DownstreamConnection, RelayTarget

ANSWER = b"HTTP/1.1 200 OK\r\n\r\n"


class Transport:
    """Keeps what is written, and whether it is read from."""

    def __init__(self) -> None:
        self.written = b""
        self._reading = True
        self.on_write: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        self.written += data
        self.on_write()

    def taken(self) -> bytes:
        data, self.written = self.written, b""
        return data

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def is_reading(self) -> bool:
        return self._reading

    def is_closing(self) -> bool:
        return False


class Handshake:
    """A relay whose endpoint has a certificate for ``name``, before its handshake ended."""

    def __init__(self, directory: Path, name: str) -> None:
        authority = Authority(directory)
        context = ssl.create_default_context(cafile=str(authority.file))
        context.check_hostname = False
        self.near = DownstreamConnection(
            RelayTarget(connector_to(443, authority), context), FailureLog()
        )
        self.far = self.near._upstream
        self.nginx, self.wire = Transport(), Transport()
        self.near.transport = cast(asyncio.Transport, cast(Any, self.nginx))
        self._received, self._ready = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = authority.server("endpoint", x509.DNSName(name))
        self.endpoint = server.wrap_bio(self._received, self._ready, server_side=True)
        self.far.connection_made(cast(asyncio.Transport, cast(Any, self.wire)))
        self._received.write(self.wire.taken())
        with pytest.raises(ssl.SSLWantReadError):
            self.endpoint.do_handshake()

    def turn(self) -> None:
        """Pass to each side what the other has sent."""
        self.far.data_received(self._ready.read())
        self._received.write(self.wire.taken())


async def test_data_from_endpoint_with_wrong_name_is_dropped(tmp_path: Path) -> None:
    shake = Handshake(tmp_path, "other.example")
    shake.turn()
    # At once, before the event loop can close the connection.
    shake.endpoint.do_handshake()
    shake.endpoint.write(ANSWER)
    shake.turn()
    assert shake.nginx.written == b""
    with pytest.raises(UntrustedError, match="none of the names"):
        await shake.far.proven


async def test_endpoint_with_right_name_can_send_first(tmp_path: Path) -> None:
    shake = Handshake(tmp_path, "real.example")
    shake.turn()
    shake.endpoint.do_handshake()
    shake.endpoint.write(ANSWER)
    shake.turn()
    assert shake.nginx.written == ANSWER
    await shake.far.proven


async def test_relay_resumes_reading_after_early_data_is_written(tmp_path: Path) -> None:
    shake = Handshake(tmp_path, "real.example")
    shake.near.data_received(b"early")
    assert not shake.nginx.is_reading()
    shake.turn()
    shake.endpoint.do_handshake()
    shake.wire.on_write = shake.far.pause_writing
    shake.near._start_relaying()
    assert not shake.nginx.is_reading()
    shake.far.resume_writing()
    assert shake.nginx.is_reading()
    shake.turn()
    assert shake.endpoint.read() == b"early"
