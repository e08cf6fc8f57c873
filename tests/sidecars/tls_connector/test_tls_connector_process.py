"""The connector's process over real TLS."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from fakes import patience
from fakes.authority import Authority
from fakes.patience import until
from fakes.tls_connector_process import SERVER_NAME, ConnectorProcess, Endpoint, connector_to, echo
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.tls_connector import config, relay
from gatehouse.sidecars.tls_connector import listeners as listening_module
from gatehouse.sidecars.tls_connector.config import Connector
from gatehouse.sidecars.tls_connector.listeners import Listeners

pytestmark = pytest.mark.process

Make = Callable[..., Endpoint]
MEGABYTE = 1 << 20


async def test_data_is_relayed_both_ways_with_sni(
    connector: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    endpoint = endpoints(echo, x509.DNSName("x.example"), x509.DNSName("real.example"))
    await connector.listen(connector_to(endpoint, authority))
    assert await connector.exchange() == b"hello"
    assert endpoint.names == [SERVER_NAME]
    assert connector.log == ""


async def test_endpoint_with_wrong_name_gets_no_data_and_is_logged_once(
    connector: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    received: list[bytes] = []
    endpoint = endpoints(
        lambda connection: received.append(connection.recv(100)), x509.DNSName(SERVER_NAME)
    )
    await connector.listen(connector_to(endpoint, authority))
    for _ in range(3):
        assert await connector.exchange() == b""
    await asyncio.to_thread(endpoint.ended.acquire)
    assert set(received) <= {b""}
    (line,) = connector.log.splitlines()
    assert line.endswith(
        f"connector: cluster c-shop-app-443, endpoint 127.0.0.1:{endpoint.port}: the certificate "
        "has none of the names real.example, spiffe://mesh/real; it has DNS:front.internal"
    )


async def test_endpoint_of_unknown_ca_is_not_trusted(
    connector: ConnectorProcess, endpoints: Make, authority: Authority, tmp_path: Path
) -> None:
    endpoint = endpoints(issuer=Authority(tmp_path, "other"))
    await connector.listen(connector_to(endpoint, authority))
    assert await connector.exchange() == b""
    assert "the certificate is not trusted: unable to get local issuer" in connector.log


async def test_refused_connection_is_logged(
    connector: ConnectorProcess, authority: Authority
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    await connector.listen(connector_to(port, authority))
    assert await connector.exchange() == b""
    assert f"127.0.0.1:{port}: connection refused" in connector.log


async def test_endpoint_without_tls_is_logged(
    connector: ConnectorProcess, authority: Authority
) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    await connector.listen(connector_to(server.sockets[0].getsockname()[1], authority))
    assert await connector.exchange() == b""
    assert "TLS failed: " in connector.log
    server.close()


async def test_new_ca_applies_to_next_connection(
    connector: ConnectorProcess, endpoints: Make, authority: Authority, tmp_path: Path
) -> None:
    endpoint = endpoints()
    await connector.listen(connector_to(endpoint, authority))
    assert await connector.exchange() == b"hello"
    await connector.listen(connector_to(endpoint, Authority(tmp_path, "later")))
    assert await connector.exchange() == b""
    await connector.listen(connector_to(endpoint, authority))
    assert await connector.exchange() == b"hello"


async def test_client_certificate_of_gateway_is_presented(
    connector: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    context = authority.server("strict", x509.DNSName("real.example"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    endpoint = endpoints(context=context)
    certificate, key = (str(path) for path in authority.issue("gateway"))
    await connector.listen(
        connector_to(endpoint, authority, certificate=certificate, key=key),
        connector_to(endpoint, authority, socket="without.sock"),
    )
    assert await connector.exchange() == b"hello"
    assert connector.log == ""
    assert await connector.exchange(name="without.sock") == b""
    assert "TLS failed: " in connector.log or "lost before any response: " in connector.log


@pytest.mark.parametrize("offered", ["", "h2"])
async def test_configured_alpn_protocol_is_offered(
    connector: ConnectorProcess, endpoints: Make, authority: Authority, offered: str
) -> None:
    context = authority.server("http2", x509.DNSName("real.example"))
    context.set_alpn_protocols(["h2", "http/1.1"])

    def chosen(connection: ssl.SSLSocket) -> None:
        while connection.recv(100):
            pass
        connection.sendall(str(connection.selected_alpn_protocol()).encode())

    await connector.listen(
        connector_to(endpoints(chosen, context=context), authority, alpn=offered)
    )
    assert await connector.exchange() == (offered or "None").encode()


async def test_large_bodies_arrive_whole(
    connector: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    body = os.urandom(MEGABYTE) * 48

    def answer(connection: ssl.SSLSocket) -> None:
        whole = hashlib.sha256()
        while data := connection.recv(65536):
            whole.update(data)
        connection.sendall(whole.digest() + body)

    await connector.listen(connector_to(endpoints(answer), authority))
    response = await connector.exchange(body)
    assert response[:32] == hashlib.sha256(body).digest()
    assert response[32:] == body


async def test_response_can_follow_end_of_request(
    connector: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    ended, answer = threading.Event(), threading.Event()

    def late(connection: ssl.SSLSocket) -> None:
        assert connection.recv(100) == b"question"
        assert connection.recv(100) == b""
        ended.set()
        answer.wait(patience.SECONDS)
        connection.sendall(b"answer")

    await connector.listen(connector_to(endpoints(late), authority))
    reader, writer = await connector.connect()
    writer.write(b"question")
    writer.write_eof()
    assert await asyncio.to_thread(ended.wait, patience.SECONDS)
    answer.set()
    assert await reader.read() == b"answer"
    writer.close()


async def test_request_can_continue_after_end_of_response(
    connector: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    received: list[bytes] = []

    def early(connection: ssl.SSLSocket) -> None:
        connection.sendall(b"enough")
        # The end of TLS is sent alone, and not waited for from the other side.
        connection.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            connection._sslobj.shutdown()  # type: ignore[attr-defined]
        connection.setblocking(True)
        with contextlib.suppress(ssl.SSLZeroReturnError):
            while True:
                received.append(connection.recv(100))

    endpoint = endpoints(early)
    await connector.listen(connector_to(endpoint, authority))
    reader, writer = await connector.connect()
    assert await reader.read() == b"enough"
    writer.write(b"more")
    writer.write_eof()
    assert await asyncio.to_thread(endpoint.ended.acquire, True, patience.SECONDS)
    assert (b"".join(received), endpoint.failures) == (b"more", [])
    writer.close()


async def test_connection_closed_by_nginx_ends_with_close_notify(
    connector: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    endpoint = endpoints()
    await connector.listen(connector_to(endpoint, authority))
    reader, writer = await connector.connect()
    writer.write(b"x")
    assert await reader.read(1) == b"x"
    writer.close()
    assert await asyncio.to_thread(endpoint.ended.acquire, True, patience.SECONDS)
    assert endpoint.failures == []


async def test_connector_stops_reading_from_client_while_endpoint_is_slow(
    connector: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    go, received = threading.Event(), hashlib.sha256()

    def slow(connection: ssl.SSLSocket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        go.wait(patience.SECONDS)
        while data := connection.recv(65536):
            received.update(data)

    endpoint = endpoints(slow)
    await connector.listen(connector_to(endpoint, authority))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(connector.directory / "a.sock"))
        client.setblocking(False)
        chunk, sent, still = os.urandom(65536), hashlib.sha256(), 0
        total = 0
        # Full when nothing more went in for a while in which megabytes could have.
        while still < 100:
            try:
                size = client.send(chunk)
            except BlockingIOError:
                still += 1
                await patience.pause()
            else:
                sent.update(chunk[:size])
                total, still = total + size, 0
            assert total < 64 * MEGABYTE
        go.set()
        client.shutdown(socket.SHUT_WR)
        assert await asyncio.to_thread(endpoint.ended.acquire, True, patience.SECONDS)
    assert received.digest() == sent.digest()


async def test_connector_stops_reading_from_endpoint_while_client_is_slow(
    connector: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    total = 64 * MEGABYTE
    sent = 0

    def flood(connection: ssl.SSLSocket) -> None:
        nonlocal sent
        chunk = bytes(65536)
        while sent < total:
            connection.sendall(chunk)
            sent += len(chunk)

    endpoint = endpoints(flood)
    await connector.listen(connector_to(endpoint, authority))
    reader, writer = await connector.connect()
    total_before, still = -1, 0
    while still < 100:
        still = still + 1 if sent == total_before else 0
        total_before = sent
        await patience.pause()
    assert 0 < total_before < total
    size = 0
    while data := await reader.read(MEGABYTE):
        size += len(data)
    assert size == total
    writer.close()


async def test_concurrent_connections_are_relayed(
    connector: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    endpoint = endpoints()
    await connector.listen(connector_to(endpoint, authority))
    bodies = [f"{number}".encode() * 100 for number in range(400)]
    assert await asyncio.gather(*map(connector.exchange, bodies)) == bodies
    assert connector.log == ""


async def test_invalid_configuration_changes_nothing(
    connector: ConnectorProcess, endpoints: Make, authority: Authority, tmp_path: Path
) -> None:
    endpoint = endpoints()
    await connector.listen(connector_to(endpoint, authority))
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    authority.file = broken
    bad = connector.configuration(connector_to(endpoint, authority, socket="b.sock"))
    assert f"cluster c-shop-app-443: {broken}: " in await connector.serve(bad)
    assert config.CONNECTORS_FILE in await connector.serve(tmp_path / "nowhere")
    assert not (connector.directory / "b.sock").exists()
    assert await connector.exchange() == b"hello"


@pytest.mark.parametrize(
    ("part", "content"), [("certificate", None), ("certificate", "no certificate"), ("key", None)]
)
async def test_client_certificate_that_cannot_be_loaded_is_named(
    connector: ConnectorProcess, authority: Authority, part: str, content: str | None
) -> None:
    files = dict(zip(("certificate", "key"), authority.issue("gateway"), strict=True))
    files[part].unlink()
    if content is not None:
        files[part].write_text(content)
    paths = {name: str(path) for name, path in files.items()}
    bad = connector.configuration(connector_to(1, authority, **paths))
    assert f"cluster c-shop-app-443: {paths[part]}: " in await connector.serve(bad)


async def test_new_content_of_a_ca_file_applies_to_next_connection(
    connector: ConnectorProcess, endpoints: Make, authority: Authority, tmp_path: Path
) -> None:
    endpoint, trusted = endpoints(), authority.file.read_bytes()
    for content, response in (
        (Authority(tmp_path, "other").file.read_bytes(), b""),
        (trusted, b"hello"),
    ):
        authority.file.write_bytes(content)
        await connector.listen(connector_to(endpoint, authority))
        assert await connector.exchange() == response


async def test_process_exits_after_linger_time_of_last_socket(
    hasty: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    connector = hasty
    endpoint = endpoints()
    await connector.listen(
        connector_to(endpoint, authority), connector_to(endpoint, authority, socket="b.sock")
    )
    await connector.listen(connector_to(endpoint, authority, socket="b.sock"))
    assert await connector.exchange() == b"hello"
    await until(lambda: not (connector.directory / "a.sock").exists())
    reader, writer = await connector.connect("b.sock")
    assert await connector.serve() == ""
    await until(lambda: not (connector.directory / "b.sock").exists())
    writer.write(b"still")
    assert await reader.readexactly(5) == b"still"
    assert connector.process.poll() is None
    writer.close()
    assert await asyncio.to_thread(connector.process.wait, patience.SECONDS) == 0
    assert list(connector.directory.iterdir()) == []


async def test_socket_configured_again_stays_open(
    hasty: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    connector = hasty
    endpoint = endpoints()
    first = connector_to(endpoint, authority)
    await connector.listen(first, connector_to(endpoint, authority, socket="b.sock"))
    await connector.listen(connector_to(endpoint, authority, socket="c.sock"))
    await connector.listen(first)
    await until(lambda: not (connector.directory / "b.sock").exists())
    await until(lambda: not (connector.directory / "c.sock").exists())
    assert await connector.exchange() == b"hello"


async def test_open_connection_is_finished_before_exit(
    connector: ConnectorProcess, endpoints: Make, authority: Authority
) -> None:
    await connector.listen(connector_to(endpoints(), authority))
    reader, writer = await connector.connect()
    writer.write(b"before")
    assert await reader.readexactly(6) == b"before"
    connector.process.send_signal(signal.SIGTERM)
    await until(lambda: not (connector.directory / "a.sock").exists())
    writer.write(b"after")
    assert await reader.readexactly(5) == b"after"
    with pytest.raises(subprocess.TimeoutExpired):
        connector.process.wait(0)
    writer.close()
    assert await asyncio.to_thread(connector.process.wait, patience.SECONDS) == 0


async def test_silent_endpoint_times_out(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "CONNECT_SECONDS", 0.1)
    messages: list[str] = []
    listening = Listeners(tmp_path, 0.0, FailureLog(messages.append))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connector = connector_to(silent.getsockname()[1], authority)
        await listening.serve([configuration(tmp_path, connector)])
        reader, writer = await asyncio.open_unix_connection(tmp_path / "a.sock")
        assert await reader.read() == b""
        writer.close()
    assert messages[0].endswith("no connection within 0.1 s")
    await listening.drain()
    assert listening.idle.is_set()


async def test_connection_is_aborted_when_nginx_left_and_endpoint_is_stuck(
    tmp_path: Path, endpoints: Make, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_module, "POLL_SECONDS", 0.1)
    stuck = threading.Event()
    endpoint = endpoints(lambda _connection: stuck.wait(patience.SECONDS))
    listening = Listeners(tmp_path, 0.0, FailureLog())
    await listening.serve([configuration(tmp_path, connector_to(endpoint, authority))])
    looking = asyncio.create_task(listening.housekeeping())
    _, writer = await asyncio.open_unix_connection(tmp_path / "a.sock")
    writer.write(bytes(16 * MEGABYTE))
    # Blocks for as long as nothing more is taken: the endpoint's buffers are full by then.
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(writer.drain(), 0.5)
    writer.transport.abort()
    await listening.serve([])
    await until(listening.idle.is_set)
    assert not stuck.is_set()
    stuck.set()
    looking.cancel()


def configuration(home: Path, *connectors: Connector) -> Path:
    directory = home / "generation"
    (directory / "gatehouse").mkdir(parents=True)
    (directory / config.CONNECTORS_FILE).write_bytes(config.encode_connectors(connectors))
    return directory


async def test_drain_ends_connections_that_outlast_the_linger_time(
    tmp_path: Path, endpoints: Make, authority: Authority
) -> None:
    arrived, finished = threading.Event(), threading.Event()

    def stay(connection: ssl.SSLSocket) -> None:
        connection.recv(1)
        arrived.set()
        finished.wait(patience.SECONDS)

    endpoint = endpoints(stay)
    listening = Listeners(tmp_path, 0.1, FailureLog())
    await listening.serve([configuration(tmp_path, connector_to(endpoint, authority))])
    reader, writer = await asyncio.open_unix_connection(tmp_path / "a.sock")
    writer.write(b"x")
    await until(arrived.is_set)
    await listening.drain()
    assert await reader.read() == b""
    assert listening.idle.is_set()
    assert not finished.is_set()
    finished.set()
    writer.close()
