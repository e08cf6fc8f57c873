"""Cost of one change of a large configuration: time of each part, and memory.

One Gateway with N HTTPRoutes (a server block each), 64 certificates, 50 filters each of passwords,
signed tokens and users of a provider, 50 authorities of backends. Once a second one rule of one
route changes. Reported: how long the whole took to be delivered and confirmed the first time; p50
and p99 from the API's answer to a change until its route's status says that it is served; what the
parts of that are, from the logs of controller and agent; bytes that a change has fetched; memory.

    python bench/large_bundle.py --routes 5000 --seconds 300
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import route_propagation as propagation
from routes import Followed, accepted, percentiles

from gatehouse.apis import resources
from gatehouse.compiler.frontends.gateway_api.extensions.extension_filters import EXTENSION_FILTERS
from gatehouse.kube.client import Client
from gatehouse.standalone import pki
from kube_base.types.resource import Resource

NAMESPACE = propagation.NAMESPACE
FILTERS = 50
"""Of each kind; and as many authorities."""

CERTIFICATES = 63
"""Listeners with HTTPS: 64 is what a Gateway may have, and one is HTTP."""

PARTS = ("apiserver", "controller", "node", "agent", "authenticator", "nginx")
Object = dict[str, Any]


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _meta(name: str) -> Object:
    return {"name": name, "namespace": NAMESPACE}


def _secret(name: str, **data: str) -> tuple[Resource, Object]:
    encoded = {key.replace("_", "."): _encoded(value) for key, value in data.items()}
    kind = "kubernetes.io/tls" if "tls.key" in encoded else "Opaque"
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": _meta(name), "type": kind}
    return resources.SECRETS, {**manifest, "data": encoded}


class Authority:
    """Issues as many certificates as are asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        authority = pki.Pki(directory)
        authority.ensure()
        self._ca = authority.ca()

    @property
    def certificate(self) -> str:
        """Its own, as PEM."""
        return self._ca.cert.read_text()

    def pair(self, name: str) -> dict[str, str]:
        """Return a certificate for one hostname and its key, encoded as in a Secret."""
        pair = pki.KeyPair(self._directory / "leaf.crt", self._directory / "leaf.key")
        leaf = pki.InstallationCertificate("leaf", name, dns=(name,), server=True)
        pki.issue(self._ca, leaf, pair, datetime.now(UTC))
        return {"tls_crt": pair.cert.read_text(), "tls_key": pair.key.read_text()}


def gateway() -> Object:
    """The Gateway with its listeners, and a certificate of its own towards backends."""
    manifest = propagation.gateway()
    for number in range(CERTIFICATES):
        manifest["spec"]["listeners"].append(
            {
                "name": f"https-{number}",
                "port": 8443,
                "protocol": "HTTPS",
                "hostname": f"r{number}.bench.example",
                "tls": {"certificateRefs": [{"name": f"tls-{number}"}]},
            }
        )
    manifest["spec"]["tls"] = {"backend": {"clientCertificateRef": {"name": "egress"}}}
    return manifest


def filter_spec(number: int) -> tuple[Object, tuple[Resource, Object]]:
    """Return the AuthenticationFilter of one of the first routes, and its Secret."""
    name = f"secret-{number}"
    if number < FILTERS:
        users = "alice:$apr1$saltsalt$JqLxlcJrn8bvNFNVxEL3V0\n"
        spec = {"type": "Basic", "basic": {"realm": "bench", "secretRef": {"name": name}}}
        return spec, _secret(name, auth=f"# {number}\n{users}")
    if number < 2 * FILTERS:
        key = base64.urlsafe_b64encode(f"a key of route {number} for tokens".encode()).decode()
        keys = {"keys": [{"kty": "oct", "kid": "a", "k": key.rstrip("=")}]}
        file = {"secretRef": {"name": name}}
        spec = {"type": "JWT", "jwt": {"realm": "bench", "source": "File", "file": file}}
        return spec, _secret(name, auth=json.dumps(keys))
    oidc = {
        "issuer": f"https://id-{number}.bench.example",
        "clientID": f"client-{number}",
        "clientSecretRef": {"name": name},
    }
    secret = _secret(name)
    secret[1]["data"] = {"client-secret": _encoded(f"secret of {number}")}
    return {"type": "OIDC", "oidc": oidc}, secret


def backend(number: int, authority: str) -> Iterator[tuple[Resource, Object]]:
    """Yield a Service whose backends use TLS, and its BackendTLSPolicy."""
    yield from propagation.service(10 + number)
    name = f"ca-{number}"
    text = f"# {number}\n{authority}"
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(name)}
    yield resources.CONFIG_MAPS, {**manifest, "data": {"ca.crt": text}}
    validation = {
        "hostname": f"backend-{number}.bench.example",
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": name}],
    }
    target = {"group": "", "kind": "Service", "name": f"backend-{10 + number}"}
    policy = resources.BACKEND_TLS_POLICIES
    yield (
        policy,
        {
            "apiVersion": policy.api_version,
            "kind": policy.kind,
            "metadata": _meta(name),
            "spec": {"targetRefs": [target], "validation": validation},
        },
    )


def route(number: int, version: int = 0) -> Object:
    """Return a route. The first ones have filters, the next ones have TLS backends."""
    kinds = 3 * FILTERS
    service = 10 + number - kinds if kinds <= number < kinds + FILTERS else number % 10
    manifest = propagation.route(f"r{number}", service)
    rule = manifest["spec"]["rules"][0]
    if number < kinds:
        group = EXTENSION_FILTERS["AuthenticationFilter"].resource.group
        reference = {"group": group, "kind": "AuthenticationFilter", "name": f"filter-{number}"}
        rule["filters"] = [{"type": "ExtensionRef", "extensionRef": reference}]
    if version:
        edit = {"set": [{"name": "x-version", "value": str(version)}]}
        rule["filters"] = [{"type": "ResponseHeaderModifier", "responseHeaderModifier": edit}]
    return manifest


def everything(count: int, authority: Authority) -> Iterator[tuple[Resource, Object]]:
    """Yield all objects except the Gateway, in an order in which they can be created."""
    for number in range(CERTIFICATES):
        yield _secret(f"tls-{number}", **authority.pair(f"r{number}.bench.example"))
    yield _secret("egress", **authority.pair("egress.bench.example"))
    for number in range(10):
        yield from propagation.service(number)
    for number in range(FILTERS):
        yield from backend(number, authority.certificate)
    for number in range(3 * FILTERS):
        spec, secret = filter_spec(number)
        yield secret
        kind = EXTENSION_FILTERS["AuthenticationFilter"].resource
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        yield kind, {**head, "metadata": _meta(f"filter-{number}"), "spec": spec}
    for number in range(count):
        yield resources.HTTP_ROUTES, route(number)


def _holds(obj: Object, kind: str) -> bool:
    conditions = obj.get("status", {}).get("conditions", ())
    return any(
        condition["type"] == kind and condition["status"] == "True" for condition in conditions
    )


class Bench:
    """One installation and its logs."""

    def __init__(self, client: Client, state: Path, count: int) -> None:
        self.client, self.state, self.count = client, state, count
        self.routes = Followed(client, resources.HTTP_ROUTES)
        self.gateways = Followed(client, resources.GATEWAYS)

    async def fill(self, authority: Authority) -> float:
        """Create all objects. Return the time from the last one until all are served."""
        gate = asyncio.Semaphore(32)

        async def create(resource: Resource, manifest: Object) -> None:
            async with gate:
                await self.client.create(resource, manifest)

        await asyncio.gather(
            *(create(*arguments) for arguments in everything(self.count, authority))
        )
        started = time.perf_counter()
        await self.client.create(resources.GATEWAYS, gateway())
        done = await self.routes.until(
            lambda objects: len(objects) == self.count and all(map(accepted, objects.values())), 600
        )
        programmed = await self.gateways.until(
            lambda objects: _holds(objects.get("bench", {}), "Programmed"), 600
        )
        return max(done, programmed) - started

    async def change(self, seconds: float) -> list[float]:
        """Change a rule every second. Return the times until each change was reported as served."""
        number, times, waiting = self.count // 2, list[float](), list[asyncio.Task[None]]()
        begun = time.perf_counter()
        for version in range(1, int(seconds) + 1):
            spec = {"spec": route(number, version)["spec"]}
            patched = await self.client.patch(resources.HTTP_ROUTES, f"r{number}", spec, NAMESPACE)
            generation = patched["metadata"]["generation"]
            waiting.append(asyncio.create_task(self._served(number, generation, times)))
            await asyncio.sleep(max(0.0, begun + version - time.perf_counter()))
        await asyncio.gather(*waiting)
        return times

    async def _served(self, number: int, generation: int, times: list[float]) -> None:
        started = time.perf_counter()

        def served(objects: dict[str, Object]) -> bool:
            parents = objects[f"r{number}"].get("status", {}).get("parents") or [{}]
            conditions = parents[0].get("conditions", ())
            return any(
                condition["type"] == "Accepted" and condition["observedGeneration"] >= generation
                for condition in conditions
            )

        times.append(await self.routes.until(served, 120) - started)

    def position(self) -> dict[Path, int]:
        """Return the current end of the logs."""
        return {path: path.stat().st_size for path in self._logs()}

    def _logs(self) -> list[Path]:
        return [self.state / "up.log", *self.state.glob("node/pods/*/log")]

    def logged(self, since: dict[Path, int]) -> Iterator[Object]:
        """Yield the log entries since the recorded position."""
        for path in self._logs():
            with path.open("rb") as file:
                file.seek(since.get(path, 0))
                for line in file:
                    with contextlib.suppress(json.JSONDecodeError):
                        document = json.loads(line)
                        if isinstance(document, dict):
                            yield document

    def memory(self) -> Object:
        """Return the resident megabytes of each part."""
        result = {part: propagation.Usage(part, self.state).read()[1] for part in PARTS}
        return {part: round(bytes_ / 1e6) for part, bytes_ in result.items()}


def breakdown(lines: list[Object], p50: float) -> Object:
    """Return the median seconds of each part of a change, from the logs."""
    compiles = [line["seconds"] for line in lines if line.get("event") == "compile pass finished"]
    applies = [line["seconds"] for line in lines if line.get("event") == "configuration applied"]

    def step(*names: str) -> float:
        result = [sum(float(sample.get(name, 0)) for name in names) for sample in applies]
        return statistics.median(result)

    # Reports alone make passes too, which compile nothing.
    slow = sorted(compiles)[-len(applies) :]
    parts = {
        "compile": statistics.median(slow),
        "fetch": step("fetched"),
        "write": step("staged"),
        "test": step("tested"),
        "companions": step("accompanied"),
        "reload and confirm": step("switched", "reloaded", "answered", "confirmed"),
        "clean": step("swept"),
    }
    parts["watch, transfer, report"] = p50 - sum(parts.values())
    return {name: round(seconds, 3) for name, seconds in parts.items()}


@contextlib.asynccontextmanager
async def installed(options: argparse.Namespace) -> AsyncIterator[Bench]:
    """Run an empty installation."""
    with propagation.state_directory() as state:
        async with (
            propagation.backends(),
            propagation.gatehouse(state, options.pool, "--log-level", "debug"),
        ):
            client = await propagation.connect(state)
            bench = Bench(client, state, options.routes)
            following = [
                asyncio.create_task(watch.run()) for watch in (bench.routes, bench.gateways)
            ]
            yield bench
            for task in following:
                task.cancel()
            await client.__aexit__(None, None, None)


async def run(options: argparse.Namespace) -> None:
    """Measure, print a line for each result."""
    print(f"| {options.routes:,} routes | |\n| --- | --- |", flush=True)

    def note(name: str, figures: Object) -> None:
        print(f"| {name} | {', '.join(f'{k}: {v}' for k, v in figures.items())} |", flush=True)

    with tempfile.TemporaryDirectory() as directory:
        authority = Authority(Path(directory))
        async with installed(options) as bench:
            note("all of it", {"served s after": round(await bench.fill(authority), 2)})
            files = [line for line in bench.logged({}) if line.get("event") == "files fetched"]
            total = {key: sum(file[key] for file in files) for key in ("files", "bytes")}
            note("fetched at first", total)
            await asyncio.sleep(10)
            since = bench.position()
            times = await bench.change(options.seconds)
            note("a change", {"changes": len(times), **percentiles(times)})
            lines = list(bench.logged(since))
            note("of which, median s", breakdown(lines, statistics.median(times)))
            fetched = [line["bytes"] for line in lines if line.get("event") == "files fetched"]
            note("fetched of it", {"bytes": round(statistics.median(fetched))})
            note("MB", bench.memory())


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--routes", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--pool", default="127.111.0.0/16")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
