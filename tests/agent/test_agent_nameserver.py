"""The agent's name server, queried by an independent resolver."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import dns.asyncquery
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import pytest

from fakes import patience
from gatehouse.agent.nginx import nameserver
from gatehouse.agent.nginx.nameserver import Nameserver
from gatehouse.dataplane.endpoints import Endpoints, WeightedEndpoint, parse_endpoints, upstream_of

TWO: Endpoints = (WeightedEndpoint("10.0.0.1", 8080, 3), WeightedEndpoint("fd00::1", 8081))
SOCKETS = contextlib.ExitStack()
ONE: Endpoints = (WeightedEndpoint("10.0.0.1", 8080),)


@contextlib.asynccontextmanager
async def serving(**known: Endpoints) -> AsyncIterator[Nameserver]:
    server = Nameserver()
    await server.start(0)
    server.publish(known)
    try:
        yield server
    finally:
        SOCKETS.close()
        server.stop()
        # Closed streams are removed in the next iterations of the event loop.
        for _ in range(3):
            await asyncio.sleep(0)


async def ask(server: Nameserver, name: str, kind: str) -> dns.message.Message:
    query = dns.message.make_query(name, kind)
    return await dns.asyncquery.udp(query, nameserver.HOST, timeout=5, port=server.port)


def servers(message: dns.message.Message) -> list[tuple[int, int, str]]:
    return sorted(
        (row.weight, row.port, b".".join(row.target.labels[:-1]).decode())
        for rrset in message.answer
        for row in rrset
    )


class Worker:
    """A client that queries repeatedly from one socket, as a worker does."""

    def __init__(self, server: Nameserver, name: str) -> None:
        self.socket = SOCKETS.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.socket.setblocking(False)
        self.socket.connect((nameserver.HOST, server.port))
        self.query = dns.message.make_query(f"_endpoints._tcp.{name}.gatehouse.", "SRV")

    def send(self) -> None:
        """Send a query with a new ID."""
        self.query.id = (self.query.id + 1) % 65536
        self.repeat()

    def repeat(self) -> None:
        """Send the query again as NGINX does without a response."""
        self.socket.send(self.query.to_wire())

    async def answer(self) -> list[tuple[int, int, str]]:
        loop = asyncio.get_running_loop()
        data = await asyncio.wait_for(loop.sock_recv(self.socket, 65535), patience.SECONDS)
        return servers(dns.message.from_wire(data))

    async def drain(self, count: int) -> int:
        """Read as fast as NGINX does until so many responses have arrived."""
        loop, done, read = asyncio.get_running_loop(), asyncio.Event(), 0

        def take() -> None:
            nonlocal read
            with contextlib.suppress(BlockingIOError):
                while True:
                    self.socket.recv(65535)
                    read += 1
            if read >= count:
                done.set()

        loop.add_reader(self.socket, take)
        try:
            async with patience.limit():
                await done.wait()
        finally:
            loop.remove_reader(self.socket)
        return read

    async def ask(self) -> list[tuple[int, int, str]]:
        self.send()
        return await self.answer()


async def test_srv_response_has_ports_and_weights() -> None:
    async with serving(web=TWO) as server:
        response = await ask(server, "_endpoints._tcp.web.gatehouse.", "SRV")
        assert servers(response) == [(1, 8081, "[fd00::1]:8081"), (3, 8080, "10.0.0.1:8080")]
        assert response.answer[0].ttl == 0
        addresses = [await ask(server, "10.0.0.1:8080.", kind) for kind in ("A", "AAAA")]
        assert [str(row) for row in addresses[0].answer[0]] == ["10.0.0.1"]
        assert addresses[1].answer == []
        six = next(row.target for row in response.answer[0] if row.port == 8081)
        assert str((await ask(server, six, "AAAA")).answer[0][0]) == "fd00::1"
        assert (await ask(server, six, "A")).answer == []


async def test_queries_outside_zone_are_not_answered() -> None:
    async with serving(web=ONE) as server:
        for kind in ("A", "SRV"):
            assert (await ask(server, "example.com.", kind)).rcode() == dns.rcode.NXDOMAIN
        # After NXDOMAIN NGINX would drop endpoints that a new agent does not know yet.
        unknown = Worker(server, "other")
        unknown.send()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await unknown.answer()
        probe = Worker(server, "web")
        for rubbish in (b"", b"\0", b"\0" * 12, b"\xff" * 400):
            probe.socket.send(rubbish)
        assert await probe.ask() == [(1, 8080, "10.0.0.1:8080")]


async def test_unchanged_response_is_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(web=ONE) as server:
        worker = Worker(server, "web")
        first = await worker.ask()
        assert not server.is_resolved("web")
        worker.send()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await worker.answer()
        assert server.is_resolved("web")
        server.publish({"web": TWO})
        assert len(await worker.answer()) == 2
        assert await server.wait_resolved(["web"], 1)
        monkeypatch.setattr(nameserver, "MAX_DELAY_SECONDS", 0.05)
        assert await worker.ask() != first
        # A response to a new client is not delayed.
        assert len(await Worker(server, "web").ask()) == 2


async def test_repeated_query_counts_as_lost_response() -> None:
    async with serving(web=ONE) as server:
        worker = Worker(server, "web")
        first = await worker.ask()
        worker.repeat()
        assert await worker.answer() == first
        # A client that lost the response has no endpoints yet.
        assert not server.is_resolved("web")
        worker.send()
        await patience.until(lambda: server.is_resolved("web"))


async def test_responses_to_one_client_are_rate_limited() -> None:
    known = {f"n{number}": ONE for number in range(400)}
    async with serving(**known) as server:
        workers = [Worker(server, "n0") for _ in range(2)]
        for worker in workers:
            # Unread responses must fit into the default socket buffer.
            worker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 212_992 // 2)
            for number, name in enumerate(known):
                query = dns.message.make_query(f"_endpoints._tcp.{name}.gatehouse.", "SRV")
                query.id = number
                worker.socket.send(query.to_wire())
        begun = asyncio.get_running_loop().time()

        counts = await asyncio.gather(*(worker.drain(len(known)) for worker in workers))
        took = asyncio.get_running_loop().time() - begun
        assert counts == [len(known)] * 2
        assert took >= (len(known) / nameserver.BURST - 1) * nameserver.PACE * 0.9


async def test_change_is_confirmed_only_by_current_workers() -> None:
    async with serving(web=ONE) as server:
        old = Worker(server, "web")
        await old.ask()
        server.workers_replaced()
        server.publish({"web": TWO})
        await old.ask()
        assert not await server.wait_resolved(["web"], 0.1)
        new = Worker(server, "web")
        waiting = asyncio.create_task(server.wait_resolved(["web"], 5))
        await new.ask()
        assert await waiting
        assert not server.is_resolved("web")


async def test_large_response_is_fetched_over_tcp() -> None:
    many = tuple(WeightedEndpoint(f"10.0.{n // 250}.{n % 250 + 1}", 8080) for n in range(700))
    async with serving(web=many) as server:
        query = dns.message.make_query("_endpoints._tcp.web.gatehouse.", "SRV")
        result = await dns.asyncquery.udp(query, nameserver.HOST, timeout=5, port=server.port)
        assert result.flags & dns.flags.TC
        whole = await dns.asyncquery.tcp(query, nameserver.HOST, timeout=5, port=server.port)
        assert len(servers(whole)) == 700


async def test_silent_connections_take_no_file_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process of the machine can connect to the name server."""
    async with serving(web=ONE) as server, patience.limit():
        opened = [
            await asyncio.open_connection(nameserver.HOST, server.port)
            for _ in range(nameserver.MAX_STREAMS + 1)
        ]
        with contextlib.suppress(ConnectionError):
            assert await opened[0][0].read() == b""
        query = dns.message.make_query("_endpoints._tcp.web.gatehouse.", "SRV")
        whole = await dns.asyncquery.tcp(query, nameserver.HOST, timeout=5, port=server.port)
        assert len(servers(whole)) == 1
        monkeypatch.setattr(nameserver, "STREAM_SECONDS", 0.1)
        late, half = await asyncio.open_connection(nameserver.HOST, server.port)
        half.write(b"\0")
        with contextlib.suppress(ConnectionError):
            assert await late.read() == b""
        for _, writer in [*opened, (late, half)]:
            writer.close()


async def test_queries_from_many_sockets_take_bounded_memory() -> None:
    async with serving(web=ONE) as server:
        query = dns.message.make_query("_endpoints._tcp.web.gatehouse.", "SRV").to_wire()
        answered: list[bytes] = []
        for port in range(nameserver.MAX_SOCKETS + 100):
            server.handle_query(query, (nameserver.HOST, port), answered.append)
        assert len(answered) == nameserver.MAX_SOCKETS + 100
        assert len(server._limits) == nameserver.MAX_SOCKETS


async def test_upstream_without_endpoints_is_nxdomain() -> None:
    async with serving(web=()) as server:
        response = await ask(server, "_endpoints._tcp.web.gatehouse.", "SRV")
        assert response.rcode() == dns.rcode.NXDOMAIN
        server.publish({})
        assert server.published() == {}


async def test_nameserver_reuses_port_unless_in_use() -> None:
    async with serving() as first:
        second = Nameserver()
        await second.start(first.port)
        assert second.port not in (0, first.port)
        old_port = second.port
        second.stop()
        third = Nameserver()
        await third.start(old_port)
        assert third.port == old_port
        third.stop()


def test_only_endpoint_files_are_decoded() -> None:
    assert upstream_of("gatehouse/endpoints/web.json") == "web"
    assert upstream_of("gatehouse/endpoints/more/web.json") == ""
    assert upstream_of("gatehouse/upstreams/web.conf") == ""
    assert parse_endpoints(b'[{"address":"10.0.0.1","port":8080,"weight":2}]') == (
        WeightedEndpoint("10.0.0.1", 8080, 2),
    )


@pytest.mark.parametrize(
    "content",
    [
        '[{"address":"10.0.0.1; return 200 x","port":80}]',
        '[{"address":"example.com","port":80}]',
        '[{"address":"10.0.0.1","port":0}]',
        '[{"address":"10.0.0.1","port":80,"weight":65536}]',
        '{"address":"10.0.0.1","port":80}',
        "rubbish",
    ],
)
def test_invalid_endpoint_is_rejected(content: str) -> None:
    with pytest.raises(ValueError):
        parse_endpoints(content.encode())
