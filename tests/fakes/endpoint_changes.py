"""Servers behind an NGINX whose endpoints change, and clients that notice a lost request."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
from aiohttp import web

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.loopback import free_port, loopback_network
from fakes.nginx_agent import master_pid, spawn
from fakes.patience import until
from gatehouse.agent.nginx.master import has_stopped_accepting
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.dataplane.file_set import FileSet
from gatehouse.runtime import procfs


class Backends:
    """Servers that respond with their number, on one port of several loopback addresses."""

    def __init__(self, count: int) -> None:
        self.port = free_port()
        self.addresses = [f"{loopback_network()}.{n + 1}" for n in range(count)]

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Backends]:
        async with contextlib.AsyncExitStack() as stack:
            for number, address in enumerate(self.addresses):
                runner = web.ServerRunner(web.Server(_answer(number), access_log=None))
                await runner.setup()
                stack.push_async_callback(runner.cleanup)
                await web.TCPSite(runner, address, self.port).start()
            yield self

    def endpoints(self, *numbers: int) -> tuple[ir.Endpoint, ...]:
        return tuple(ir.Endpoint(self.addresses[n], self.port) for n in sorted(numbers))


def _answer(number: int) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    async def answer(request: web.BaseRequest) -> web.Response:
        await request.read()
        return web.Response(text=str(number))

    return answer


def forwarding(
    port: int, *shares: tuple[tuple[ir.Endpoint, ...], int], cluster: str = "c", named: bool = True
) -> FileSet:
    """Return the files of a Gateway with one route to some clusters."""
    clusters = tuple(
        ir.Cluster(f"{cluster}-{n}", endpoints) for n, (endpoints, _) in enumerate(shares)
    )
    backends = tuple(
        ir.Backend(known.name, weight) for known, (_, weight) in zip(clusters, shares, strict=True)
    )
    route = ir.Route("ns/r/0/0", ir.Match(), ir.Forward(backends))
    host = ir.VirtualHost("", (route,))
    listener = ir_gateway.Listener(port, "HTTP", (host,))
    gateway = ir_gateway.GatewayConfiguration(GATEWAY, "127.0.0.1", (listener,), clusters=clusters)
    capabilities = nginx.NginxCapabilities(
        (1, 31, 3) if named else (1, 22, 0), named_endpoints=named
    )
    return nginx.NginxGenerator(capabilities).generate(gateway).file_set


class Load:
    """Clients that send POST without pause, because a failed GET would be retried silently."""

    def __init__(self, port: int, clients: int = 6) -> None:
        self.failed: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self._url = f"http://127.0.0.1:{port}/"
        self._clients = clients
        self._done = False

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._client()) for _ in range(self._clients)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._done = True
        await asyncio.gather(*self._tasks)

    async def more(self, count: int) -> None:
        """Wait until so many more requests were answered."""
        expected = self.answered.total() + count
        await until(lambda: self.answered.total() >= expected)

    async def settles(self, expected: set[str]) -> None:
        """Wait until only these servers respond. Requests already in flight may finish late."""
        async with patience.limit():
            self.answered.clear()
            while True:
                await patience.pause()
                if self.answered.keys() == expected:
                    return
                self.answered.clear()

    async def _client(self) -> None:
        async with aiohttp.ClientSession() as session:
            while not self._done:
                try:
                    async with session.post(self._url, data=b"x") as response:
                        text = await response.text()
                        if response.status == 200:
                            self.answered[text] += 1
                        else:
                            self.failed[str(response.status)] += 1
                except aiohttp.ClientError as error:
                    self.failed[type(error).__name__] += 1


@contextlib.contextmanager
def agents(environ: dict[str, str]) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Return a function that starts an agent in place of the previous one, which may be dead."""
    with contextlib.ExitStack() as stack:

        def start() -> subprocess.Popen[bytes]:
            started = spawn(environ)
            stack.callback(started.wait)
            stack.callback(started.terminate)
            return started

        yield start


async def connected(plane: ControlPlane) -> DataPlaneReport:
    return await plane.until(lambda report: bool(report.instances))


async def unseeded(directory: Path) -> None:
    """Wait until workers without seeds have taken over, and former workers have ended."""
    root = directory / "root"

    def served() -> bool:
        current = (root / "current").resolve()
        return not (current / "seeds").exists() and (root / "proven").resolve() == current

    await until(served)
    await until(lambda: not any(map(has_stopped_accepting, workers(directory))))


def workers(directory: Path) -> frozenset[int]:
    return procfs.children(master_pid(directory))
