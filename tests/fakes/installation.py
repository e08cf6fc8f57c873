"""One `gatehouse up`, its objects and its traffic, for tests that use the whole."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from fakes import patience
from fakes.durations import pace
from fakes.kinds import resource_of
from fakes.loopback import free_port, loopback_network
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import process_records
from gatehouse.standalone.state_directory import State

ROOT = Path(__file__).parents[2]
PORT = 8080
HTTPS_PORT = 8443
HOST_NET = loopback_network()
BACKEND = (f"{HOST_NET}.250", 9080)
REVISED = (f"{HOST_NET}.251", 9080)
BAD_SNIPPETS_FILTER = {
    "apiVersion": "gateway.nginx.org/v1alpha1",
    "kind": "SnippetsFilter",
    "metadata": {"name": "bad", "namespace": "default"},
    "spec": {"snippets": [{"context": "http.server.location", "value": "not_a_directive on;"}]},
}
"""A filter that NGINX rejects."""


class Installation:
    """One `gatehouse up`."""

    def __init__(self, state: Path, *more: str) -> None:
        self.state = state
        self._more = more
        self.command: tuple[str, ...] = (sys.executable, "-m", "gatehouse")
        self.environment: dict[str, str] | None = None
        """None: the tests' own."""
        self.output = state / "up.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._addresses = _address_options(state)

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    def start(self) -> None:
        command = (
            *(*self.command, "up", "--state-dir", str(self.state)),
            *self._addresses,
            *("--address-pool", f"{HOST_NET}.0/25", "--snippets", "--log-format", "json"),
            *self._more,
        )
        with self.output.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(patience.SECONDS)

    def part(self, name: str) -> process_records.ProcessRecord:
        result = process_records.recorded(self.state / "run" / f"{name}.json")
        assert result is not None, f"{name} does not run"
        return result

    def agent(self) -> process_records.ProcessRecord:
        result = [process_records.recorded(p) for p in self.state.glob("node/pods/*/process.json")]
        running = [record for record in result if record is not None]
        assert len(running) == 1
        return running[0]

    def nginx(self) -> int:
        (pid,) = self.state.glob("node/pods/*/volumes/run/nginx.pid")
        return int(pid.read_text())

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[kube.Client]:
        """Yield a client of a cluster administrator, as soon as the API server serves."""
        await patience.until(self._is_served)
        async with kube.Client.from_kubeconfig(self.kubeconfig) as client:
            yield client

    async def _is_served(self) -> bool:
        with contextlib.suppress(Exception):
            async with kube.Client.from_kubeconfig(self.kubeconfig) as client:
                await client.list(resources.GATEWAYS)
                return True
        return False


def _address_options(state: Path) -> list[str]:
    """Return options for the addresses of the installation in ``state``, or for free ports.

    Ports that `gatehouse up` chooses could be taken by another test before it listens.
    """
    stored = State(state).stored_addresses()
    return [
        f"--{option}-address={address or f'127.0.0.1:{free_port()}'}"
        for option, address in (
            ("api", stored.api),
            ("agent", stored.agent),
            ("health-bind", stored.health),
        )
    ]


def hello(gateway_class: str = "gatehouse-nginx") -> list[dict[str, Any]]:
    text = (ROOT / "examples" / "hello.yaml").read_text().replace("127.0.0.1", BACKEND[0])
    text = text.replace("gatehouse-nginx", gateway_class)
    return list(yaml.safe_load_all(text.replace("9000", str(BACKEND[1]))))


async def apply(client: kube.Client, manifests: list[dict[str, Any]]) -> None:
    for manifest in manifests:
        resource, metadata = resource_of(manifest["kind"]), manifest["metadata"]
        try:
            await client.create(resource, manifest)
        except kube.AlreadyExists:
            await client.patch(resource, metadata["name"], manifest, metadata["namespace"])


async def condition(
    client: kube.Client, kind: str, name: str, type_: str, namespace: str = "default"
) -> dict[str, Any] | None:
    current = await client.get(resource_of(kind), name, namespace)
    status = current.get("status") or {}
    if kind.endswith("Route"):
        status = next(iter(status.get("parents") or ()), {})
    for result in status.get("conditions") or ():
        fresh = result.get("observedGeneration") == current["metadata"]["generation"]
        if result["type"] == type_ and fresh:
            return {**result, "addresses": status.get("addresses") or []}
    return None


async def holds(client: kube.Client, kind: str, name: str, type_: str, status: str = "True") -> Any:
    result: Any = None

    async def is_so() -> Any:
        nonlocal result
        result = await condition(client, kind, name, type_)
        return result if result and result["status"] == status else None

    return await patience.until(is_so, lambda: f"{kind} {name} {type_} is {result}")


async def address(client: kube.Client) -> str:
    async def assigned() -> Any:
        result = await holds(client, "Gateway", "web", "Programmed")
        return result["addresses"]

    return str((await patience.until(assigned))[0]["value"])


async def get(address: str, path: str = "/", **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}:{PORT}{path}", headers=headers) as response,
    ):
        return response.status, response.headers.get("X-Backend", "")


async def answers_https(where: str, name: str, port: int = HTTPS_PORT) -> bool:
    """Return whether a request to ``<name>.example`` is answered by the backend. No certificate is
    verified."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"https://{where}:{port}/"
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                url, ssl=context, server_hostname=f"{name}.example",
                headers={"Host": f"{name}.example"},
            ) as response,
        ):  # fmt: skip
            return response.status == 200
    except aiohttp.ClientError:
        return False


@contextlib.asynccontextmanager
async def traffic(
    address: str, path: str = "/", host: str = "", pause: float = 0.01, port: int = 0
) -> AsyncIterator[Counter[str]]:
    """Send requests all the time, kept-alive and new connections; count what came back.

    ``host``: another Host header than the address. ``pause``: seconds after each request.
    ``port``: another port than :data:`PORT`.
    """
    answers: Counter[str] = Counter()
    headers = {"Host": host} if host else {}

    async def send(force_close: bool) -> None:
        connector = aiohttp.TCPConnector(force_close=force_close)
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                try:
                    async with session.get(
                        f"http://{address}:{port or PORT}{path}", headers=headers
                    ) as response:
                        await response.read()
                        answers[str(response.status)] += 1
                except (aiohttp.ClientError, TimeoutError) as error:
                    answers[type(error).__name__] += 1
                await pace(pause)

    tasks = [asyncio.create_task(send(force)) for force in (True, False)]
    try:
        yield answers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def route(name: str, path: str, service: str = "app", **rule: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "parentRefs": [{"name": "web"}],
            "rules": [
                {
                    "matches": [{"path": {"value": path}}],
                    "backendRefs": [{"name": service, "port": 80}],
                    **rule,
                }
            ],
        },
    }
