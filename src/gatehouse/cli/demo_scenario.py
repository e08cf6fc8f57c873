"""The demonstration: the cafe example on a fresh installation, with real requests."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from gatehouse.apis import resources
from gatehouse.cli.output import show
from gatehouse.cli.terminal import ObjectTable, coloured, show_coloured, wide_console
from gatehouse.kube import client as kube
from gatehouse.standalone import echo, pki, up
from gatehouse.standalone.state_directory import State
from kube_base.types.resource import Resource

_HOST = "cafe.example.com"
HTTP, HTTPS = 8080, 8443
SPLIT = 400
"""Requests sent to the 90/10 split."""

DEMO_TIMEOUT_SECONDS = 60.0
"""Seconds until the demonstration gives up waiting."""

console = wide_console()


class DemoError(Exception):
    """The demonstration could not be carried out."""


class Expectation(msgspec.Struct, frozen=True):
    """One request and what must come back."""

    method: str
    url: str
    route: str
    status: int = 200
    backend: str = ""
    location: str = ""
    headers: dict[str, str] = {}


class DemoResponse(msgspec.Struct, frozen=True):
    """Response to a request of the demo."""

    status: int
    backend: str
    location: str
    milliseconds: float


HTTP_BASE, HTTPS_BASE = f"http://{_HOST}:{HTTP}", f"https://{_HOST}:{HTTPS}"
EXPECTATIONS = (
    Expectation("GET", f"{HTTP_BASE}/tea", "tea: path", backend="tea"),
    Expectation("GET", f"{HTTP_BASE}/tea/green?cup=big", "tea: path", backend="tea"),
    Expectation("GET", f"{HTTPS_BASE}/tea", "tea: path, TLS", backend="tea"),
    Expectation(
        "GET",
        f"{HTTP_BASE}/coffee",
        "coffee: header x-version: v2",
        backend="coffee-v2",
        headers={"x-version": "v2"},
    ),
    Expectation("POST", f"{HTTPS_BASE}/orders", "orders: method POST", backend="coffee"),
    Expectation("GET", f"{HTTPS_BASE}/orders", "orders: method GET", status=404),
    Expectation(
        "GET",
        f"{HTTP_BASE}/account",
        "secure: redirect",
        status=301,
        location=f"{HTTPS_BASE}/account",
    ),
    Expectation("GET", f"{HTTPS_BASE}/account", "account: path, TLS", backend="tea"),
    Expectation("GET", f"{HTTP_BASE}/nothing", "(none)", status=404),
)


async def run_scenario(
    directory: Path, pool: str, examples: Path, once: bool, stop: asyncio.Event
) -> bool:
    """Carry it out; give whether every answer was right. Raises DemoError."""
    installed: asyncio.Future[State] = asyncio.get_running_loop().create_future()
    options = up.InstallationOptions(
        state_dir=directory,
        api_address="127.0.0.1:0",
        agent_address="127.0.0.1:0",
        address_pool=pool,
        log_level="warning",
    )
    manifests = _manifests(examples)
    ending = asyncio.Event()
    task = asyncio.create_task(
        up.run_installation(options, ending, lambda state, _: installed.set_result(state))
    )
    try:
        async with echo.serve_echo(_backends(manifests)):
            return await _show(task, installed, manifests, once, stop)
    finally:
        ending.set()
        await task


async def _show(
    task: asyncio.Task[None],
    installed: asyncio.Future[State],
    manifests: list[dict[str, Any]],
    once: bool,
    stop: asyncio.Event,
) -> bool:
    with _progress() as progress:
        starting = progress.add_task("Starting API server, controller, node", total=1)
        waited: set[asyncio.Future[Any]] = {task, installed}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
            raise DemoError("Gatehouse ended before it was ready")
        state = installed.result()
        progress.update(starting, completed=1)
        async with _client(state) as client:
            await _apply(client, [*manifests, _tls_secret(state)], progress)
            address = await _until_programmed(client, manifests, progress, stop)
    if stop.is_set():
        return False
    right = await _requests(address, state)
    if not once:
        # A single run ends here, and the state directory goes with it.
        _print_addresses(state, address)
        show("Serving. Ctrl-C ends it.")
        await stop.wait()
    return right


def _progress() -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        console=console,
    )


def _client(state: State) -> kube.Client:
    return kube.Client.from_kubeconfig(state.kubeconfig)


def _manifests(examples: Path) -> list[dict[str, Any]]:
    return [
        manifest
        for path in sorted(examples.glob("*.yaml"))
        for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if manifest
    ]


def _backends(manifests: list[dict[str, Any]]) -> dict[tuple[str, int], str]:
    """Return the endpoints in the example's EndpointSlices, with the names of their Services."""
    return {
        (address, port["port"]): manifest["metadata"]["labels"]["kubernetes.io/service-name"]
        for manifest in manifests
        if manifest["kind"] == "EndpointSlice"
        for endpoint in manifest["endpoints"]
        for address in endpoint["addresses"]
        for port in manifest["ports"]
    }


def _resource(kind: str) -> Resource:
    return next(
        resource
        for resource in vars(resources).values()
        if isinstance(resource, Resource) and resource.kind == kind
    )


def _tls_secret(state: State) -> dict[str, Any]:
    """Make the listener's certificate, signed by the installation's own CA."""
    leaf = pki.InstallationCertificate("demo", _HOST, dns=(_HOST,), server=True)
    pair = state.pki.leaf(leaf)
    pki.issue(state.pki.ca(), leaf, pair, datetime.now(UTC))
    encoded = {
        "tls.crt": base64.b64encode(pair.cert.read_bytes()).decode(),
        "tls.key": base64.b64encode(pair.key.read_bytes()).decode(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "cafe-tls", "namespace": "cafe"},
        "data": encoded,
    }


async def _apply(client: kube.Client, manifests: list[dict[str, Any]], progress: Progress) -> None:
    task = progress.add_task("Applying examples/cafe", total=len(manifests))
    for manifest in manifests:
        resource = _resource(manifest["kind"])
        try:
            await client.create(resource, manifest)
        except kube.AlreadyExists:
            metadata = manifest["metadata"]
            await client.patch(
                resource, metadata["name"], manifest, namespace=metadata.get("namespace", "")
            )
        except kube.ApiError as error:
            name = manifest["metadata"]["name"]
            raise DemoError(f"{resource.kind} {name} was not accepted: {error}") from error
        progress.advance(task)


async def _until_programmed(
    client: kube.Client, manifests: list[dict[str, Any]], progress: Progress, stop: asyncio.Event
) -> str:
    """Wait until everything is Accepted and Programmed; give the Gateway's address."""
    waiting = [m for m in manifests if m["kind"] in ("GatewayClass", "Gateway", "HTTPRoute")]
    task = progress.add_task("Accepted and programmed", total=len(waiting))
    deadline, address = time.monotonic() + DEMO_TIMEOUT_SECONDS, ""
    while not stop.is_set():
        open_points: list[str] = []
        for manifest in waiting:
            metadata = manifest["metadata"]
            current = await client.get(
                _resource(manifest["kind"]),
                metadata["name"],
                namespace=metadata.get("namespace", ""),
            )
            if manifest["kind"] == "Gateway":
                addresses = current.get("status", {}).get("addresses") or [{}]
                address = addresses[0].get("value", "")
            missing = _missing(current)
            if missing:
                open_points.append(f"{manifest['kind']} {metadata['name']}: {missing}")
        progress.update(task, completed=len(waiting) - len(open_points))
        if not open_points:
            return str(address)
        if time.monotonic() > deadline:
            raise DemoError("still waiting for " + "; ".join(open_points))
        await asyncio.sleep(0.1)
    return str(address)


def _missing(current: dict[str, Any]) -> str:
    """Return the condition that an object still lacks; empty if none."""
    status = current.get("status") or {}
    if current["kind"] == "HTTPRoute":
        parents = status.get("parents") or [{}]
        sets = [parent.get("conditions") or () for parent in parents]
    else:
        sets = [status.get("conditions") or ()]
    needed = ("Accepted", "Programmed") if current["kind"] == "Gateway" else ("Accepted",)
    for conditions in sets:
        holding = {c["type"]: c for c in conditions if c["status"] == "True"}
        for kind in needed:
            condition = holding.get(kind)
            if (
                condition is None
                or condition.get("observedGeneration") != current["metadata"]["generation"]
            ):
                message = next(
                    (c["message"] for c in conditions if c["type"] == kind), "not said yet"
                )
                return f"{kind} ({message})"
    return ""


@contextlib.asynccontextmanager
async def _session(address: str, state: State) -> AsyncIterator[aiohttp.ClientSession]:
    class Resolver(aiohttp.abc.AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: int = socket.AF_INET
        ) -> list[aiohttp.abc.ResolveResult]:
            return [
                {
                    "hostname": host,
                    "host": address,
                    "port": port,
                    "family": family or socket.AF_INET,
                    "proto": 0,
                    "flags": 0,
                }
            ]

        async def close(self) -> None:
            pass

    context = ssl.create_default_context(cafile=str(state.pki.ca().cert))
    connector = aiohttp.TCPConnector(resolver=Resolver(), ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


async def _send(session: aiohttp.ClientSession, expectation: Expectation) -> DemoResponse:
    started = time.perf_counter()
    async with session.request(
        expectation.method,
        expectation.url,
        headers=expectation.headers,
        allow_redirects=False,
    ) as response:
        await response.read()
        return DemoResponse(
            status=response.status,
            backend=response.headers.get("X-Backend", ""),
            location=response.headers.get("Location", ""),
            milliseconds=(time.perf_counter() - started) * 1000,
        )


def _verdict(*, right: bool) -> Text:
    return coloured("✓", "green") if right else coloured("✗", "red")


async def _requests(address: str, state: State) -> bool:
    table = ObjectTable(
        "Requests", "Request", "Matched route", "Backend", "Status", "Latency", "Result"
    )
    right = True
    async with _session(address, state) as session:
        for expectation in EXPECTATIONS:
            answer = await _send(session, expectation)
            good = (answer.status, answer.backend, answer.location) == (
                expectation.status,
                expectation.backend,
                expectation.location,
            )
            right &= good
            table.add_values(
                f"{expectation.method} {expectation.url}",
                expectation.route,
                answer.backend or (f"-> {answer.location}" if answer.location else "-"),
                str(answer.status),
                f"{answer.milliseconds:.1f} ms",
                _verdict(right=good),
            )
        shares, milliseconds, sound = await _split(session)
        right &= sound
        table.add_values(
            f"GET {HTTP_BASE}/coffee  x {SPLIT}",
            "coffee: 90/10 split",
            ", ".join(f"{name} {count / SPLIT:.0%}" for name, count in shares.most_common()),
            "200" if sum(shares.values()) == SPLIT else "some failed",
            f"{milliseconds:.1f} ms",
            _verdict(right=sound),
        )
    show_coloured(table, console)
    text, colour = ("Every answer was right.", "green") if right else ("Some were wrong.", "red")
    show_coloured(coloured(text, colour), console)
    return right


async def _split(session: aiohttp.ClientSession) -> tuple[Counter[str], float, bool]:
    """Send requests to the 90/10 split; give shares, mean latency, and whether they are sound."""
    expectation = Expectation("GET", f"{HTTP_BASE}/coffee", "")
    answers = [await _send(session, expectation) for _ in range(SPLIT)]
    shares = Counter(answer.backend for answer in answers if answer.status == 200)
    mean = sum(answer.milliseconds for answer in answers) / SPLIT
    # Chance alone puts a share of 10 % of 400 requests outside 3..17 % once in 300,000 runs.
    sound = shares.keys() == {"coffee", "coffee-v2"} and 0.03 <= shares["coffee-v2"] / SPLIT <= 0.17
    return shares, mean, sound and sum(shares.values()) == SPLIT


def _print_addresses(state: State, address: str) -> None:
    lines = (
        f"Gateway cafe/cafe     {address} (HTTP {HTTP}, HTTPS {HTTPS})",
        f"kubeconfig            {state.kubeconfig}",
        f"kubectl               kubectl --kubeconfig {state.kubeconfig} get gateways,httproutes -A",
        f"curl                  curl --resolve {_HOST}:{HTTPS}:{address} "
        f"--cacert {state.pki.ca().cert} {HTTPS_BASE}/tea",
    )
    for line in lines:
        show(line)
