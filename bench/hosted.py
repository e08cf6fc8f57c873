"""Cost of hundreds or thousands of kube-apiservers behind one address, and of another name.

N names, all of them led to one NGINX that ends TLS: through Envoy as Gatehouse configures it
(compiler, control plane, relay), through HAProxy, and through NGINX with a hand-written map (both
with a backend for each name). Each has one worker on the same cores as the load (h2load, full
handshakes with a request each, then downloads of 64 MB). The proxies' own CPU time is in the
figures: wall time is shared with the load.

    python bench/hosted.py --names 10,1000,10000 --rounds 3
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import os
import re
import signal
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import discovery
import msgspec
from cryptography import x509

from fakes.authority import Authority
from fakes.envoy_running import EnvoyControlPlane
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.ir.access_log import AccessLog
from gatehouse.incremental.query import Engine, Key, Snapshot

ADDRESS, PORT, BACKEND = "127.99.0.1", 8443, 9443
LARGE = 64 << 20
CONNECTIONS, DOWNLOADS = 400, 6
TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE

Object = dict[str, Any]


class Proxy:
    """One of the three proxies, running."""

    def __init__(self, pids: Callable[[], list[int]], add: Callable[[str], Awaitable[str]]) -> None:
        self.pids = pids
        self.add = add
        """Serves one name more, and says what was sent for it."""

    def cpu(self) -> float:
        """Seconds of CPU time so far."""
        result = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                result += int(words[11]) + int(words[12])
        return result / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Megabytes that are its own."""
        result = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                result += sum(map(int, re.findall(r"^Pss: +(\d+)", rollup, re.M)))
        return result / 1024


def name(number: int) -> str:
    return f"api.n{number}.bench.test"


async def answers(host: str) -> bool:
    """Say whether a TLS handshake for a name succeeds."""
    try:
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection(
                ADDRESS, PORT, ssl=TRUSTING, server_hostname=host
            )
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


async def served(host: str, seconds: float = 120.0) -> None:
    """Wait until a name is served."""
    async with asyncio.timeout(seconds):
        while not await answers(host):  # noqa: ASYNC110 - it is the proxy that is waited for
            await asyncio.sleep(0.0005)


@contextlib.asynccontextmanager
async def process(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    child = await asyncio.create_subprocess_exec(*command)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [pid, *map(int, text.split())]


@contextlib.asynccontextmanager
async def backend(directory: Path) -> AsyncIterator[None]:
    """Run what ends TLS."""
    _prepare(directory)
    nginx = str(nginx_binary.find_nginx_binary(None))
    arguments = ("-p", str(directory), "-e", "stderr", "-c", f"{directory}/backend.conf")
    async with process(nginx, *arguments):
        yield


def _prepare(directory: Path) -> None:
    crt, key = Authority(directory).issue("bench", x509.DNSName("*.bench.test"))
    # Workers are another user.
    directory.chmod(0o755)
    (directory / "large").write_bytes(b"\0" * LARGE)
    (directory / "small").write_bytes(b"ok")
    (directory / "backend.conf").write_text(
        f"daemon off; worker_processes 1; pid {directory}/backend.pid; error_log stderr crit;"
        "events { worker_connections 8192; } http { access_log off; sendfile on;"
        f"client_body_temp_path {directory}/t1; proxy_temp_path {directory}/t2;"
        f"fastcgi_temp_path {directory}/t3; uwsgi_temp_path {directory}/t4;"
        f"scgi_temp_path {directory}/t5; server {{ listen {ADDRESS}:{BACKEND} ssl backlog=4096;"
        f"ssl_certificate {crt}; ssl_certificate_key {key}; ssl_session_tickets off;"
        f"ssl_session_cache off; root {directory}; }} }}"
    )


class World:
    """HostedAPIServers as objects, compiled as the controller does it."""

    def __init__(self, count: int, *, access_log: bool = True) -> None:
        self.access_log = access_log
        self.engine = Engine(Snapshot(combined.INDEXES))
        self.generator = envoy.EnvoyGenerator(envoy.EnvoyCapabilities())
        changes: dict[Key, Any] = {
            gateway_api.SETTINGS_KEY: gateway_api.ControllerSettings(bind="any"),
            **self._object("GatewayClass", "", "c", {"controllerName": gateway_api.ENVOY}),
        }
        tls = {"name": "tls", "port": PORT, "protocol": "TLS", "tls": {"mode": "Passthrough"}}
        inside = {"name": "in", "port": 9444, "protocol": "gatehouse.dev/ProxyProtocol"}
        gateway = {"gatewayClassName": "c", "listeners": [tls, inside]}
        changes |= self._object("Gateway", "ns", "gw", gateway)
        for number in range(count):
            changes |= self.server(number)
        self.engine.commit(changes)

    def _object(self, kind: str, namespace: str, name: str, spec: Object) -> dict[Key, Any]:
        metadata = {"name": name, "namespace": namespace, "creationTimestamp": "2026-01-01"}
        raw = {"metadata": metadata, "spec": spec}
        return {(kind, namespace, name): combined.decode_object(kind, raw)}

    def server(self, number: int) -> dict[Key, Any]:
        """Return the objects of one server: the Service, its endpoints and its HostedAPIServer."""
        own = f"s{number}"
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        slices = {
            "metadata": {
                "name": own, "namespace": "ns", "labels": {"kubernetes.io/service-name": own},
            },
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": BACKEND, "protocol": "TCP"}],
            "endpoints": [{"addresses": [ADDRESS]}],
        }  # fmt: skip
        return {
            **self._object("Service", "ns", own, {"ports": [{"name": "https", "port": 443}]}),
            ("EndpointSlice", "ns", own): combined.decode_object("EndpointSlice", slices),
            **self._object("HostedAPIServer", "ns", own, {
                "parentRefs": [{"name": "gw"}], "hosts": [name(number)],
                "service": {"name": own}, "advertiseAddress": address,
            }),
        }  # fmt: skip

    def generate(self) -> envoy.GeneratedResources:
        """Compile and render as a pass of the controller does, statuses too."""
        gc.disable()
        with self.engine.compile() as ask:
            gateway = combined.compile_combined_gateway(ask, ("Gateway", "ns", "gw"))
            ask.map(combined.desired_status, ask(combined.status_subjects))
        gc.enable()
        assert gateway is not None
        access_log = AccessLog() if self.access_log else None
        settings = msgspec.structs.replace(gateway.settings, access_log=access_log)
        return self.generator.generate(msgspec.structs.replace(gateway, settings=settings))


@contextlib.asynccontextmanager
async def by_gatehouse(
    directory: Path, count: int, *, access_log: bool = True
) -> AsyncIterator[Proxy]:
    world = World(count, access_log=access_log)
    begun = time.perf_counter()
    generated = world.generate()
    first = time.perf_counter() - begun
    print(f"  the first pass over {count} took {first:.2f} s", flush=True)
    gc.freeze()
    counting = discovery.Counting()
    plane = EnvoyControlPlane(directory)
    await plane.start()
    async with discovery.relayed(plane, directory) as pids:
        plane.publish(generated.resources)
        await plane.until(lambda report: report.programmed, 600)

        async def add(host: str) -> str:
            number, before = int(re.findall(r"\d+", host)[0]), counting.bytes
            begun = time.perf_counter()
            world.engine.commit(world.server(number))
            resources = world.generate().resources
            passed = time.perf_counter() - begun
            plane.publish(resources)
            await served(host)
            return f"{counting.bytes - before} bytes; the pass {passed * 1000:.1f} ms"

        yield Proxy(lambda: pids[1:], add)
    await plane.server.stop(0.1)


@contextlib.asynccontextmanager
async def by_haproxy(directory: Path, count: int) -> AsyncIterator[Proxy]:
    config, names = directory / "haproxy.cfg", [name(number) for number in range(count)]

    def write() -> None:
        (directory / "names.map").write_text(
            "".join(f"{hostname} b_{hostname}\n" for hostname in names)
        )
        config.write_text(
            "global\n nbthread 1\n maxconn 8000\ndefaults\n mode tcp\n timeout connect 5s\n"
            f" timeout client 1h\n timeout server 1h\nfrontend f\n"
            f" bind {ADDRESS}:{PORT} backlog 4096\n"
            " tcp-request inspect-delay 5s\n"
            " tcp-request content accept if { req.ssl_hello_type 1 }\n"
            f" use_backend %[req.ssl_sni,lower,map({directory}/names.map)]\n"
            + "".join(
                f"backend b_{hostname}\n server s {ADDRESS}:{BACKEND}\n" for hostname in names
            )
        )

    write()
    async with process("haproxy", "-W", "-q", "-f", str(config)) as running:

        async def add(host: str) -> str:
            names.append(host)
            write()
            # A signal that comes while the last one is worked on is lost.
            for _ in range(20):
                running.send_signal(signal.SIGUSR2)
                with contextlib.suppress(TimeoutError):
                    await served(host, 3)
                    break
            return f"{config.stat().st_size + (directory / 'names.map').stat().st_size} bytes"

        yield Proxy(lambda: children(running.pid), add)


@contextlib.asynccontextmanager
async def by_nginx(directory: Path, count: int) -> AsyncIterator[Proxy]:
    config, names = directory / "stream.conf", [name(number) for number in range(count)]

    def write() -> None:
        config.write_text(
            f"daemon off; worker_processes 1; pid {directory}/pid; error_log stderr crit;"
            "events { worker_connections 8000; } stream { map_hash_max_size 65536;"
            "map_hash_bucket_size 256; proxy_connect_timeout 5s; proxy_timeout 1h;"
            "map $ssl_preread_server_name $up {\n"
            + "".join(f"{hostname} u_{hostname};\n" for hostname in names)
            + "}\n"
            + "".join(
                f"upstream u_{hostname} {{ server {ADDRESS}:{BACKEND}; }}\n" for hostname in names
            )
            + f"server {{ listen {ADDRESS}:{PORT} backlog=4096;"
            " ssl_preread on; proxy_pass $up; } }"
        )

    write()
    nginx = str(nginx_binary.find_nginx_binary(None))
    arguments = ("-p", str(directory), "-e", "stderr", "-c", str(config))
    async with process(nginx, *arguments) as running:

        async def add(host: str) -> str:
            names.append(host)
            write()
            running.send_signal(signal.SIGHUP)
            await served(host)
            return f"{config.stat().st_size} bytes"

        yield Proxy(lambda: children(running.pid), add)


async def load(host: str, path: str, requests: int, clients: int) -> float:
    """Return seconds for a number of requests, each over its own connection if possible."""
    command = (
        *("h2load", "--h1", "-t1", "-n", str(requests), "-c", str(clients)),
        *(f"--connect-to={ADDRESS}:{PORT}", f"https://{host}/{path}"),
    )
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    out, _ = await child.communicate()
    done = re.search(rb"finished in ([\d.]+)(m?s)", out)
    good = re.search(rb"(\d+) 2xx", out)
    assert done is not None, out.decode()
    assert good is not None, out.decode()
    assert int(good[1]) == requests, out.decode()
    return float(done[1]) / (1000 if done[2] == b"ms" else 1)


async def measure(proxy: Proxy, count: int) -> tuple[float, float, float, float]:
    """Return connections/s, CPU us for each, MB/s, CPU s for a GB."""
    host = name(count - 1)
    cpu = proxy.cpu()
    taken = await load(host, "small", CONNECTIONS, CONNECTIONS)
    cpu_of_connection = (proxy.cpu() - cpu) / CONNECTIONS * 1e6
    cpu = proxy.cpu()
    bulk = await load(host, "large", DOWNLOADS, 2)
    moved = DOWNLOADS * LARGE / 1e6
    return CONNECTIONS / taken, cpu_of_connection, moved / bulk, (proxy.cpu() - cpu) / moved * 1000


PROXIES: dict[str, Callable[[Path, int], contextlib.AbstractAsyncContextManager[Proxy]]] = {
    "Envoy by Gatehouse": by_gatehouse,
    "Envoy without access log": functools.partial(by_gatehouse, access_log=False),
    "HAProxy": by_haproxy,
    "NGINX": by_nginx,
}


async def one(kind: str, count: int, rounds: int) -> tuple[str, float]:
    """Measure a proxy with a number of names. Return a row, and its memory."""
    with tempfile.TemporaryDirectory(prefix="ghb-") as text:
        directory = Path(text)
        begun = time.perf_counter()
        async with PROXIES[kind](directory, count) as proxy:
            await served(name(count - 1))
            start, memory = time.perf_counter() - begun, proxy.memory()
            await measure(proxy, count)
            result = [await measure(proxy, count) for _ in range(rounds)]
            added = []
            for number in range(5):
                # A proxy that has just been reloaded may still be busy with that.
                await asyncio.sleep(1)
                begun = time.perf_counter()
                answer = await proxy.add(name(count + number))
                added.append((time.perf_counter() - begun) * 1000)
            middle = [statistics.median(column) for column in zip(*result, strict=True)]
            row = (
                f"| {kind} | {count:,} | {middle[0]:.0f} | {middle[1]:.0f} | {middle[2]:.0f} |"
                f" {middle[3]:.2f} | {start:.2f} | {memory:.0f} |"
                f" {statistics.median(added):.1f} ({max(added):.0f}) | {answer} |"
            )
            return row, memory


async def run(sizes: list[int], rounds: int, kinds: list[str]) -> None:
    """Measure all of them."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="ghb-") as directory:
        async with backend(Path(directory)):
            for count in sizes:
                for kind in kinds:
                    print(f"{kind}, {count} names", flush=True)
                    row, _ = await one(kind, count, rounds)
                    print(row, flush=True)
                    rows.append(row)
    print(
        "\n| | names | TLS conn/s | CPU us/conn | MB/s | CPU s/GB | start s | MB | add ms | sent |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    print("\n".join(rows))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", default="10,1000,10000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PROXIES)
    chosen = parser.parse_args()
    sizes = [int(size) for size in chosen.names.split(",")]
    asyncio.run(run(sizes, chosen.rounds, [chosen.only] if chosen.only else [*PROXIES]))


if __name__ == "__main__":
    main()
