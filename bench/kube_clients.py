"""Many clients of kube-apiservers: what they take of an Envoy, and how few connections they become.

Watches are held and nothing happens; then as many clients with a connection of their own ask short
requests, at a pace and all at once. Part of :mod:`kube_apiservers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import h2.config
import h2.connection
import h2.events

from fakes import kube_serving
from gatehouse.compiler.ir import kube_apiserver as ir

HOST, PORT = kube_serving.HOST, kube_serving.PORT

STREAMS = 100
"""Watches on a connection of a client."""

_ARRIVING = 250
"""Clients that come each second."""

_TIMEOUT_SECONDS = 120.0
"""Seconds for the watches of one connection to begin."""


def spent(process: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> int:
    """Return the resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class _Watcher:
    """A connection with watches, which answers as HTTP/2 asks it to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="latin-1"))
        self._began: set[int] = set()

    async def begin(self, count: int) -> None:
        """Ask for so many, and wait until all have begun."""
        self._h2.initiate_connection()
        target = "/api/v1/pods?watch=true"
        head = [(":method", "GET"), (":scheme", "https"), (":authority", HOST), (":path", target)]
        for number in range(count):
            self._h2.send_headers(2 * number + 1, head, end_stream=True)
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while len(self._began) < count:
                await self._hear()

    async def go_on(self) -> None:
        """Answer pings, until cancelled."""
        while True:
            await self._hear()

    async def _hear(self) -> None:
        self._writer.write(self._h2.data_to_send())
        data = await self._reader.read(65536)
        if not data:
            raise SystemExit("a connection with watches was ended")
        for event in self._h2.receive_data(data):
            match event:
                case h2.events.ResponseReceived():
                    answer: Any = event
                    if dict(answer.headers)[":status"] != "200":
                        raise SystemExit(f"a watch was not begun: {answer.headers}")
                    self._began.add(answer.stream_id)
                case h2.events.StreamReset():
                    raise SystemExit(f"a watch was ended: {event}")
                case _:
                    pass
        self._writer.write(self._h2.data_to_send())


async def hold(world: kube_serving.World, count: int, streams: int) -> None:
    """Hold so many watches at a server with ``streams`` on a connection; say what they take."""
    world.upstream.streams = streams
    await world.serve(world.cluster(kube_serving.ALL, name="w", hosts=(HOST,), streams=streams))
    await asyncio.sleep(1.5)
    process = world.served.running.process.pid
    before, began = resident(process), spent(process)
    connected = world.upstream.connections["h2"]
    async with _watching(world, count):
        used = spent(process) - began
        await asyncio.sleep(2)
        grown = resident(process) - before
        opened = world.upstream.connections["h2"] - connected
        began = spent(process)
        await asyncio.sleep(5)
        idle = (spent(process) - began) / 5
    print(
        f"{count} watches on {-(-count // STREAMS)} connections, a server with {streams} streams "
        f"on each: {opened} connections to it; {grown / 2**20:.1f} MB more "
        f"({grown / count:.0f} bytes each); {used / count * 1e6:.0f} us of CPU each to begin; "
        f"{idle * 100:.1f} % of a core while idle",
        flush=True,
    )


@contextlib.asynccontextmanager
async def _watching(world: kube_serving.World, count: int) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for first in range(0, count, STREAMS):
            reader, writer = await asyncio.open_connection(
                world.served.address, PORT, ssl=_offering_h2(world), server_hostname=HOST
            )
            stack.callback(writer.transport.abort)
            watcher = _Watcher(reader, writer)
            await watcher.begin(min(STREAMS, count - first))
            stack.callback(asyncio.create_task(watcher.go_on()).cancel)
        yield


def _offering_h2(world: kube_serving.World) -> ssl.SSLContext:
    """Return the client's TLS context with alice's certificate and HTTP/2 in ALPN."""
    context = world.client("alice", "dev")
    context.set_alpn_protocols(["h2"])
    return context


class Crowd:
    """Clients with a connection each, before servers that answer at once."""

    def __init__(self, world: kube_serving.World, h2load: str, token: str) -> None:
        self._world, self._h2load, self._token = world, h2load, token
        self._targets = world.directory / "crowd"
        self._targets.write_text(f"https://{HOST}/api/v1/namespaces/n/pods/p\n")

    async def ask(
        self,
        server: ir.KubeApiServer,
        streams: int,
        count: int,
        requests: int,
        *,
        pace: float = 0.0,
    ) -> None:
        """Have so many clients ask ``requests`` times, ``pace`` a second or as fast as they can."""
        world = self._world
        # A cluster of its own: no connection is left from before.
        name = f"crowd-{streams}-{pace:g}"
        await world.serve(
            world.cluster(name=name, hosts=(HOST,), servers=(server,), streams=streams)
        )
        # A server that begins only now is not ready at the first look.
        for _ in range(int(_TIMEOUT_SECONDS * 10)):
            if "1" in await self._figures(name, "membership_healthy"):
                break
            await asyncio.sleep(0.1)
        output = await self._load(count, requests, pace)
        answers = re.search(r"requests: .*\nstatus codes: .*", output)
        summary = answers[0].replace("\n", "; ") if answers else output
        seconds = re.search(r"finished in ([^,]*),", output)
        opened, left = await self._connections(name)
        manner = f"{pace:g} requests a second each" if pace else "as fast as they can"
        print(
            f"{count} clients, {manner}, a server with {streams} streams on a connection: "
            f"{opened} connections to it, {left} at the end; {summary} "
            f"in {seconds[1] if seconds else '?'}",
            flush=True,
        )

    async def _load(self, count: int, requests: int, pace: float) -> str:
        # Handshakes of all at once take longer than an Envoy waits for one.
        paced = ("--rps", f"{pace:g}", "-r", str(_ARRIVING)) if pace else ()
        process = await asyncio.create_subprocess_exec(
            self._h2load, "-n", str(count * requests), "-c", str(count),
            "-m", "1", "-t", "1", *paced,
            "--connect-to", f"{self._world.served.address}:{PORT}", "-i", str(self._targets),
            "-H", f"authorization: Bearer {self._token}",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        return (await process.communicate())[0].decode()

    async def _connections(self, name: str) -> tuple[int, int]:
        """Return the numbers of connections from Envoy to a cluster: opened so far, and open."""
        (opened,) = await self._figures(name, "upstream_cx_http2_total")
        (left,) = await self._figures(name, "upstream_cx_active")
        return int(opened), int(left)

    async def _figures(self, name: str, figure: str) -> list[str]:
        """Return Envoy's statistics of a cluster; empty while there are none."""
        connector = aiohttp.UnixConnector(str(self._world.directory / "admin.sock"))
        async with (
            aiohttp.ClientSession(connector=connector) as http,
            http.get(f"http://envoy/stats?filter={figure}") as answer,
        ):
            return re.findall(rf"cluster\.kube[:_]{name}\.{figure}: (\d+)", await answer.text())
