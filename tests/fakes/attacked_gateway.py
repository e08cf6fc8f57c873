"""A Gateway of both proxies that two tenants share, beside the attacks of one of them.

The good routes are asked all the time.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from fakes.installation import (
    PORT,
    Installation,
    apply,
    condition,
    get,
    traffic,
)
from fakes.installation_fixtures import running_installation
from fakes.kinds import resource_of
from fakes.patience import until
from fakes.strict_envoy import environment_with_strict_envoy
from fakes.strict_nginx import environment_with_strict_nginx
from fakes.tenant_attacks import GOOD, HOST, PROXIES, TENANT, Attack, Object, good, service
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import process_records

GOOD_ROUTES = 20


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """Return an installation whose proxies reject expressions that the compiler accepts."""
    with tempfile.TemporaryDirectory(prefix="gh-strict-") as name:
        directory = Path(name)
        environment = environment_with_strict_nginx(directory)
        environment |= environment_with_strict_envoy(directory)
        with running_installation(environment=environment) as started:
            yield started


def manifests() -> list[Object]:
    """Return two Gateways that tenants share, and what both tenants have."""
    listener = {
        "name": "http",
        "port": PORT,
        "protocol": "HTTP",
        "allowedRoutes": {"namespaces": {"from": "All"}},
    }
    gateways: list[Object] = [
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"name": proxy, "namespace": "default"},
            "spec": {"gatewayClassName": f"gatehouse-{proxy}", "listeners": [listener]},
        }
        for proxy in PROXIES
    ]
    for namespace in (GOOD, TENANT):
        gateways += [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            *service("app", namespace),
        ]
    return [*gateways, *(good(f"good-{number}") for number in range(GOOD_ROUTES))]


class Shared:
    """A Gateway that tenants share."""

    def __init__(self, installation: Installation, client: kube.Client, proxy: str) -> None:
        self.installation, self.client, self.proxy = installation, client, proxy
        self.where = ""

    async def start(self) -> None:
        """Create it unless it exists, and wait until it serves the good routes."""
        for manifest in manifests():
            with contextlib.suppress(kube.AlreadyExists):
                await self.client.create(resource_of(manifest["kind"]), manifest)

        async def has_address() -> bool:
            result = await self.programmed()
            if result and result["addresses"]:
                self.where = result["addresses"][0]["value"]
            return bool(self.where)

        await until(has_address)
        for number in range(GOOD_ROUTES):
            await self.served(f"/good-{number}")

    async def programmed(self) -> dict[str, Any] | None:
        return await condition(self.client, "Gateway", self.proxy, "Programmed")

    async def status(self, path: str) -> int:
        """Return the status of the response; 0 without a connection."""
        with contextlib.suppress(aiohttp.ClientConnectorError):
            return (await get(self.where, path, Host=HOST))[0]
        return 0

    async def served(self, path: str, expected: int = 200) -> None:
        """Wait until a path is served, or answered with another status."""
        status = 0

        async def answers() -> bool:
            nonlocal status
            status = await self.status(path)
            return status == expected

        await until(answers, lambda: f"{path} has status {status}")

    async def add(self, name: str) -> None:
        """Add a good route, and wait until it is served."""
        await apply(self.client, [good(name)])
        await self.served(f"/{name}")

    async def message_has(self, *texts: str) -> str:
        """Wait until the Gateway's condition has some texts. Return the message."""

        result: dict[str, Any] | None = None

        async def holds() -> str:
            nonlocal result
            result = await self.programmed()
            message = result["message"] if result and result["status"] == "True" else ""
            return message if all(text in message for text in texts) else ""

        return str(await until(holds, lambda: f"{texts} not in {result}"))

    async def left_out(self, attack: Attack, culprits: Sequence[str]) -> str:
        """Wait until exactly these objects are left out, and say why. Return since when."""
        count = f"{len(culprits)} object{'s' if len(culprits) > 1 else ''} left out"
        message = await self.message_has(count, *sorted(culprits)[:5])
        for reporter in attack.reporters or culprits:
            await self.says_why(*reporter.split(f" {TENANT}/"))
        for path in attack.paths:
            await self.served(path)
        for path in attack.failing:
            await self.served(path, 500)
        return message.partition("since ")[2].partition(": ")[0]

    async def says_why(self, kind: str, name: str) -> None:
        """Wait until the status of a tenant's object says that the proxy rejected it."""
        status: object = None

        async def says() -> bool:
            nonlocal status
            status = (await self.client.get(resource_of(kind), name, TENANT)).get("status")
            return f"rejected by {self.proxy}/" in str(status)

        await until(says, lambda: f"{kind} {name} has {status}")

    async def lifted(self) -> None:
        """Wait until nothing is left out."""
        result: dict[str, Any] | None = None

        async def nothing() -> bool:
            nonlocal result
            result = await self.programmed()
            return bool(result and result["status"] == "True" and "since" not in result["message"])

        await until(nothing, lambda: result)

    async def _pods(self) -> list[Object]:
        pods = (await self.client.list(resources.PODS, "default")).items
        return [pod for pod in pods if pod["metadata"]["name"].startswith(f"{self.proxy}-")]

    async def pods(self) -> dict[str, bool]:
        """Return the UIDs of the Pods, and whether each is ready."""
        return {
            pod["metadata"]["uid"]: any(
                item["type"] == "Ready" and item["status"] == "True"
                for item in (pod.get("status") or {}).get("conditions") or ()
            )
            for pod in await self._pods()
        }

    async def replace_pods(self) -> None:
        """Delete the Pods, and wait until another one is ready."""
        before = await self.pods()
        for pod in await self._pods():
            await self.client.delete(resources.PODS, pod["metadata"]["name"], "default")

        async def is_replaced() -> bool:
            now = await self.pods()
            return len(now) == 1 and all(now.values()) and now.keys().isdisjoint(before)

        await until(is_replaced)

    def agent(self) -> process_records.ProcessRecord:
        """Return the agent's process."""
        for path in self.installation.state.glob("node/pods/*/process.json"):
            record = process_records.recorded(path)
            if record is not None and self._belongs(record.pid):
                return record
        raise AssertionError("the agent does not run")

    def _belongs(self, pid: int) -> bool:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return f"POD_IP={self.where}".encode() in variables


@pytest.fixture
async def shared(
    installation: Installation, client: kube.Client, backends: None, proxy: str
) -> Shared:
    """Return the Gateway of a proxy, which serves all good routes. Nothing is left out."""
    result = Shared(installation, client, proxy)
    await result.start()
    return result


@contextlib.asynccontextmanager
async def unharmed(shared: Shared, allowed: Set[str] = frozenset()) -> AsyncIterator[None]:
    """Send requests of good routes. None may fail, except with ``allowed`` errors."""
    async with (
        traffic(shared.where, "/good-0", HOST) as first,
        traffic(shared.where, f"/good-{GOOD_ROUTES - 1}", HOST) as last,
    ):
        yield
    assert set(first + last) - allowed == {"200"}, first + last


@contextlib.asynccontextmanager
async def attacked(shared: Shared, attack: Attack) -> AsyncIterator[str]:
    """Create the objects of an attack. Yield since when they are left out. Delete them at the end.

    A good route of the same time is served, and another one while objects are left out.
    """
    try:
        await apply(shared.client, list(attack.before))
        for path in attack.paths if not attack.known else ():
            if not any(path.startswith(f"/{item['metadata']['name']}") for item in attack.bad):
                await shared.served(path)
        if attack.known:
            await shared.left_out(msgspec.structs.replace(attack, paths=()), attack.known)
        await apply(shared.client, [*attack.bad, good("beside")])
        await shared.served("/beside")
        since = await shared.left_out(attack, (*attack.known, *attack.culprits))
        await shared.add("after")
        yield since
    finally:
        beside = (good("beside"), good("after"))
        for item in (*attack.bad, *attack.before, *beside):
            metadata = item["metadata"]
            with contextlib.suppress(kube.NotFound):
                await shared.client.delete(
                    resource_of(item["kind"]), metadata["name"], metadata["namespace"]
                )
    await shared.lifted()
    await shared.add("last")
    await shared.client.delete(resources.HTTP_ROUTES, "last", GOOD)
