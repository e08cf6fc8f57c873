"""The agent's name server, asked by a resolver that is not ours."""

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

from gatehouse.agent.nginx import nameserver
from gatehouse.agent.nginx.nameserver import Nameserver
from gatehouse.dataplane.endpoints import Endpoint, Endpoints, decode, name_of

TWO: Endpoints = (Endpoint("10.0.0.1", 8080, 3), Endpoint("fd00::1", 8081))
SOCKETS = contextlib.ExitStack()
ONE: Endpoints = (Endpoint("10.0.0.1", 8080),)


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
        # Closed streams are gone at the next turns of the loop.
        await asyncio.sleep(0.01)


async def ask(server: Nameserver, name: str, kind: str) -> dns.message.Message:
    query = dns.message.make_query(name, kind)
    return await dns.asyncquery.udp(query, nameserver.HOST, timeout=5, port=server.port)


def servers(message: dns.message.Message) -> list[tuple[int, int, str]]:
    return sorted(
        (row.weight, row.port, b".".join(row.target.labels[:-1]).decode())
        for found in message.answer
        for row in found
    )


class Worker:
    """Asks again and again from one socket, as a worker does."""

    def __init__(self, server: Nameserver, name: str) -> None:
        self.socket = SOCKETS.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.socket.setblocking(False)
        self.socket.connect((nameserver.HOST, server.port))
        self.query = dns.message.make_query(f"_endpoints._tcp.{name}.gatehouse.", "SRV")

    def send(self) -> None:
        """Ask anew, under another number."""
        self.query.id = (self.query.id + 1) % 65536
        self.repeat()

    def repeat(self) -> None:
        """Ask again as NGINX does when no answer came."""
        self.socket.send(self.query.to_wire())

    async def answer(self) -> list[tuple[int, int, str]]:
        loop = asyncio.get_running_loop()
        data = await asyncio.wait_for(loop.sock_recv(self.socket, 65535), 5)
        return servers(dns.message.from_wire(data))

    async def drain(self, count: int) -> int:
        """Read as fast as NGINX does until there were so many answers."""
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
            async with asyncio.timeout(30):
                await done.wait()
        finally:
            loop.remove_reader(self.socket)
        return read

    async def ask(self) -> list[tuple[int, int, str]]:
        self.send()
        return await self.answer()


async def test_an_upstreams_servers_come_with_ports_and_weights() -> None:
    async with serving(web=TWO) as server:
        found = await ask(server, "_endpoints._tcp.web.gatehouse.", "SRV")
        assert servers(found) == [(1, 8081, "[fd00::1]:8081"), (3, 8080, "10.0.0.1:8080")]
        assert found.answer[0].ttl == 0
        addresses = [await ask(server, "10.0.0.1:8080.", kind) for kind in ("A", "AAAA")]
        assert [str(row) for row in addresses[0].answer[0]] == ["10.0.0.1"]
        assert addresses[1].answer == []
        six = next(row.target for row in found.answer[0] if row.port == 8081)
        assert str((await ask(server, six, "AAAA")).answer[0][0]) == "fd00::1"
        assert (await ask(server, six, "A")).answer == []


async def test_of_what_is_not_its_own_it_knows_nothing() -> None:
    async with serving(web=ONE) as server:
        for kind in ("A", "SRV"):
            assert (await ask(server, "example.com.", kind)).rcode() == dns.rcode.NXDOMAIN
        # NGINX would drop what it has, of which a new agent does not know yet.
        unknown = Worker(server, "other")
        unknown.send()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await unknown.answer()
        probe = Worker(server, "web")
        for rubbish in (b"", b"\0", b"\0" * 12, b"\xff" * 400):
            probe.socket.send(rubbish)
        assert await probe.ask() == [(1, 8080, "10.0.0.1:8080")]


async def test_without_news_an_answer_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
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
        # Another one is not made to wait for what it never had.
        assert len(await Worker(server, "web").ask()) == 2


async def test_a_question_that_is_repeated_had_no_answer() -> None:
    async with serving(web=ONE) as server:
        worker = Worker(server, "web")
        first = await worker.ask()
        worker.repeat()
        assert await worker.answer() == first
        # Who lost the answer has not learned anything yet.
        assert not server.is_resolved("web")
        worker.send()
        async with asyncio.timeout(5):
            while not server.is_resolved("web"):
                await asyncio.sleep(0.01)


async def test_no_asker_gets_more_at_once_than_its_socket_holds() -> None:
    known = {f"n{number}": ONE for number in range(400)}
    async with serving(**known) as server:
        workers = [Worker(server, "n0") for _ in range(2)]
        for worker in workers:
            # What is not read yet must fit into what a socket holds by default.
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


async def test_a_change_counts_as_taken_only_by_the_workers_that_serve() -> None:
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


async def test_hundreds_of_endpoints_are_fetched_over_a_stream() -> None:
    many = tuple(Endpoint(f"10.0.{n // 250}.{n % 250 + 1}", 8080) for n in range(700))
    async with serving(web=many) as server:
        query = dns.message.make_query("_endpoints._tcp.web.gatehouse.", "SRV")
        found = await dns.asyncquery.udp(query, nameserver.HOST, timeout=5, port=server.port)
        assert found.flags & dns.flags.TC
        whole = await dns.asyncquery.tcp(query, nameserver.HOST, timeout=5, port=server.port)
        assert len(servers(whole)) == 700


async def test_an_upstream_without_endpoints_does_not_exist() -> None:
    async with serving(web=()) as server:
        found = await ask(server, "_endpoints._tcp.web.gatehouse.", "SRV")
        assert found.rcode() == dns.rcode.NXDOMAIN
        server.publish({})
        assert server.published() == {}


async def test_it_listens_where_it_did_unless_somebody_else_does() -> None:
    async with serving() as first:
        second = Nameserver()
        await second.start(first.port)
        assert second.port not in (0, first.port)
        kept = second.port
        second.stop()
        third = Nameserver()
        await third.start(kept)
        assert third.port == kept
        third.stop()


def test_only_files_of_endpoints_are_read_as_such() -> None:
    assert name_of("gatehouse/endpoints/web.json") == "web"
    assert name_of("gatehouse/endpoints/more/web.json") == ""
    assert name_of("gatehouse/upstreams/web.conf") == ""
    assert decode(b'[{"address":"10.0.0.1","port":8080,"weight":2}]') == (
        Endpoint("10.0.0.1", 8080, 2),
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
def test_what_is_no_endpoint_is_refused(content: str) -> None:
    with pytest.raises(ValueError):
        decode(content.encode())
