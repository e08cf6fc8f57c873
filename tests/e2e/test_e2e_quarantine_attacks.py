"""A tenant's rejected objects fail no request of another tenant, whatever fails beside them.

Both proxies serve a Gateway that two tenants share. All their routes have the same hostname. The
good routes are asked all the time.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from fakes.installation import (
    BACKEND,
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
from fakes.rejected_objects import refused_authority
from fakes.strict_envoy import environment_with_strict_envoy
from fakes.strict_nginx import (
    KILLED,
    REFUSED,
    REFUSED_PAIR,
    REFUSED_UNNAMED,
    environment_with_strict_nginx,
)
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import process_records

pytestmark = pytest.mark.process

Object = dict[str, Any]

HOST = "shared.example"
PROXIES = ("nginx", "envoy")
"""Names of the proxies, and of a Gateway with each."""
GOOD, TENANT = "good", "tenant"
"""Namespaces of the tenant with good objects only, and of the one with rejected objects."""
GOOD_ROUTES = 20
MANY_ROUTES = 300
MATCHES = 128


class Attack(msgspec.Struct, frozen=True):
    """Objects that a proxy rejects."""

    bad: tuple[Object, ...]
    culprits: tuple[str, ...] = ("HTTPRoute tenant/bad",)
    """Objects that are left out."""
    before: tuple[Object, ...] = ()
    """Objects that are there before, of which those in :attr:`known` are left out."""
    known: tuple[str, ...] = ()
    proxies: tuple[str, ...] = PROXIES
    paths: tuple[str, ...] = ()
    """Paths of the tenant that are served beside what is left out."""
    failing: tuple[str, ...] = ()
    """Paths of the tenant that are answered with 500."""
    reporters: tuple[str, ...] = ()
    """Objects whose statuses say why; empty: what is left out."""
    quick: bool = True
    """True if its search needs few and short tests."""


def route(namespace: str, name: str, *rules: Object) -> Object:
    """Return a route for both Gateways."""
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "parentRefs": [{"name": proxy, "namespace": "default"} for proxy in PROXIES],
            "hostnames": [HOST],
            "rules": list(rules),
        },
    }


def rule(*paths: str, kind: str = "PathPrefix") -> Object:
    """Return a rule that forwards some paths."""
    return {
        "matches": [{"path": {"type": kind, "value": path}} for path in paths],
        "backendRefs": [{"name": "app", "port": 80}],
    }


def good(name: str) -> Object:
    """Return the good route of path ``/<name>``."""
    return route(GOOD, name, rule(f"/{name}"))


def bad(text: str, name: str = "bad") -> Object:
    """Return a route of the tenant with a rejected expression beside the good path ``/<name>``."""
    return route(TENANT, name, rule(f"/{name}"), rule(f"/{name}/{text}", kind="RegularExpression"))


def matching_often(text: str) -> Object:
    """Return a route of which every match is rejected."""
    paths = [f"/bad/{number}/{text}" for number in range(MATCHES)]
    rules = [
        rule(*paths[start : start + 8], kind="RegularExpression") for start in range(0, MATCHES, 8)
    ]
    return route(TENANT, "bad", *rules)


def limiting(key: str) -> Object:
    """Return a policy for the tenant's own route whose key is a text of NGINX."""
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "limited"}
    return {
        "apiVersion": "gateway.nginx.org/v1alpha1",
        "kind": "RateLimitPolicy",
        "metadata": {"name": "bad", "namespace": TENANT},
        "spec": {
            "targetRefs": [target],
            "rateLimit": {"local": {"rules": [{"key": key, "rate": "1000r/s"}]}},
        },
    }


def service(name: str, namespace: str) -> tuple[Object, Object]:
    """Return a Service of the example's backend."""
    host, port = BACKEND
    metadata = {"name": name, "namespace": namespace}
    return (
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"ports": [{"name": "http", "port": 80, "targetPort": port}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": port}],
            "endpoints": [{"addresses": [host]}],
        },
    )


def secured() -> tuple[Object, ...]:
    """Return a route of the tenant with a backend whose CA certificates are rejected."""
    to_backend = rule("/bad/secure")
    to_backend["backendRefs"][0]["name"] = "secure"
    policy = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "BackendTLSPolicy",
        "metadata": {"name": "bad", "namespace": TENANT},
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "secure"}],
            "validation": {
                "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}],
                "hostname": "secure.example",
            },
        },
    }
    backend = service("secure", TENANT)
    return (
        refused_authority("ca", TENANT),
        *backend,
        policy,
        route(TENANT, "bad", rule("/bad"), to_backend),
    )


LEFT, RIGHT = REFUSED_PAIR
FIVE = tuple(f"bad-{number}" for number in range(5))

ATTACKS = {
    "policy of a route": Attack(
        (limiting(f"$host {REFUSED}"),),
        ("RateLimitPolicy tenant/bad",),
        before=(route(TENANT, "limited", rule("/limited")),),
        proxies=("nginx",),
        paths=("/limited",),
    ),
    "unnamed": Attack((bad(REFUSED_UNNAMED),), proxies=("nginx",), paths=("/bad",)),
    "CA certificates of a backend": Attack(
        secured(),
        ("ConfigMap tenant/ca",),
        paths=("/bad",),
        failing=("/bad/secure",),
        reporters=("BackendTLSPolicy tenant/bad",),
    ),
    "five beside a known one": Attack(
        tuple(bad(REFUSED_UNNAMED, name) for name in FIVE),
        tuple(f"HTTPRoute tenant/{name}" for name in FIVE),
        before=(bad(REFUSED_UNNAMED, "known"),),
        known=("HTTPRoute tenant/known",),
        proxies=("nginx",),
        paths=tuple(f"/{name}" for name in FIVE),
        quick=False,
    ),
    "five named": Attack(
        tuple(bad(REFUSED, name) for name in FIVE),
        tuple(f"HTTPRoute tenant/{name}" for name in FIVE),
        before=(bad(REFUSED, "known"),),
        known=("HTTPRoute tenant/known",),
        paths=tuple(f"/{name}" for name in FIVE),
    ),
    "many matches": Attack((matching_often(REFUSED),), quick=False),
    "pair": Attack(
        (bad(RIGHT),),
        before=(bad(LEFT, "innocent"),),
        proxies=("nginx",),
        paths=("/innocent", f"/innocent/{LEFT}", "/bad"),
    ),
    "tests ended by a signal": Attack(
        (bad(KILLED),), proxies=("nginx",), paths=("/bad",), quick=False
    ),
    "beside many routes": Attack(
        (bad(REFUSED),),
        before=tuple(good(f"many-{number}") for number in range(MANY_ROUTES)),
        paths=("/bad",),
        quick=False,
    ),
    "unnamed beside many routes": Attack(
        (bad(REFUSED_UNNAMED),),
        before=tuple(good(f"many-{number}") for number in range(MANY_ROUTES)),
        proxies=("nginx",),
        paths=("/bad",),
        quick=False,
    ),
    "one of many": Attack(
        (bad(REFUSED), *(good(f"beside-{n}") for n in range(20))), paths=("/bad",)
    ),
}
CASES = [
    pytest.param(name, proxy, marks=[] if attack.quick else [pytest.mark.long])
    for name, attack in ATTACKS.items()
    for proxy in attack.proxies
]


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


GAP = {"ClientConnectorError", "ClientOSError", "ServerDisconnectedError"}
"""Errors of requests without an answer: two Pods cannot have one address on one machine."""


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


@pytest.mark.parametrize(("name", "proxy"), CASES)
async def test_rejected_objects_of_a_tenant_fail_no_request_of_another(
    shared: Shared, name: str
) -> None:
    async with unharmed(shared), attacked(shared, ATTACKS[name]):
        pass


def kill_controller(shared: Shared) -> None:
    """Kill the controller."""
    shared.installation.part("controller").signal(signal.SIGKILL)


def kill_agent(shared: Shared) -> None:
    """Kill the agent. Its proxy continues."""
    shared.agent().signal(signal.SIGKILL)


FAULTS = {"controller": kill_controller, "agent": kill_agent}


@pytest.mark.long
@pytest.mark.parametrize(("name", "proxy"), CASES)
async def test_killed_controller_and_agent_fail_no_request_beside_rejected_objects(
    shared: Shared, name: str
) -> None:
    attack = ATTACKS[name]
    async with unharmed(shared), attacked(shared, attack) as since:
        for fault, cause in FAULTS.items():
            cause(shared)
            await shared.add(f"after-{fault}")
            culprits = (*attack.known, *attack.culprits)
            assert await shared.left_out(attack, culprits) == since
            await shared.client.delete(resources.HTTP_ROUTES, f"after-{fault}", GOOD)


REPLACED = [("unnamed", "nginx"), ("one of many", "envoy")]
"""Cases of replaced Pods that need little time."""


@pytest.mark.parametrize(("name", "proxy"), REPLACED)
async def test_replaced_data_plane_answers_no_request_wrong_beside_rejected_objects(
    shared: Shared, name: str
) -> None:
    attack = ATTACKS[name]
    async with unharmed(shared, GAP), attacked(shared, attack) as since:
        await shared.replace_pods()
        async with unharmed(shared):
            await shared.add("after-replacement")
            assert await shared.left_out(attack, attack.culprits) == since
        await shared.client.delete(resources.HTTP_ROUTES, "after-replacement", GOOD)


@pytest.mark.parametrize(
    ("name", "proxy"),
    REPLACED + [case for case in CASES if "beside many routes" in str(case.values[0])],
)
async def test_new_data_plane_serves_all_good_routes_at_once_beside_a_rejected_object(
    shared: Shared, name: str
) -> None:
    """The controller is killed, too, so that no version is known to be good."""
    attack, client = ATTACKS[name], shared.client
    paths = [f"/good-{number}" for number in range(GOOD_ROUTES)]
    metadata = [item["metadata"] for item in (*attack.before, *attack.bad)]
    paths += [f"/{item['name']}" for item in metadata if item["namespace"] == GOOD]
    # Until the Pod is ready, Envoy answers without the scope of which it rejects a route.
    allowed = GAP if shared.proxy == "nginx" else GAP | {"404"}
    async with attacked(shared, attack), unharmed(shared, allowed):
        kill_controller(shared)
        await shared.replace_pods()
        async with unharmed(shared):
            assert {await shared.status(path) for path in paths} == {200}
            await shared.add("after-replacement")
            await client.delete(resources.HTTP_ROUTES, "after-replacement", GOOD)
            await shared.left_out(attack, attack.culprits)


@pytest.mark.parametrize("proxy", PROXIES)
async def test_deletion_of_a_gateway_keeps_what_is_left_out_of_another(shared: Shared) -> None:
    client, other = shared.client, "other"
    gateway = next(item for item in manifests() if item["metadata"]["name"] == shared.proxy)
    gateway = {**gateway, "metadata": {"name": other, "namespace": TENANT}}
    rejected = bad(REFUSED)
    rejected["spec"]["parentRefs"].append({"name": other})
    attack = Attack((gateway, rejected), paths=("/bad",))
    async with unharmed(shared), attacked(shared, attack) as since:

        async def is_left_out() -> bool:
            result = await condition(client, "Gateway", other, "Programmed", TENANT)
            return result is not None and "1 object left out" in result["message"]

        await until(is_left_out)
        await client.delete(resources.GATEWAYS, other, TENANT)
        await shared.add("later")
        assert await shared.left_out(attack, attack.culprits) == since
        await client.delete(resources.HTTP_ROUTES, "later", GOOD)


@pytest.mark.long
@pytest.mark.parametrize("proxy", PROXIES)
async def test_rejected_object_that_comes_and_goes_delays_no_good_object(shared: Shared) -> None:
    """It is deleted at any moment of a search, and created again with another rejected value."""
    texts = (REFUSED, REFUSED_UNNAMED) if shared.proxy == "nginx" else (REFUSED, f"x{REFUSED}")
    async with unharmed(shared):
        for number in range(12):
            attack = Attack((bad(texts[number % 2]),), paths=("/bad",))
            await apply(shared.client, [*attack.bad, good(f"round-{number}")])
            await shared.served(f"/round-{number}")
            if number % 3 == 0:
                await shared.left_out(attack, attack.culprits)
            await shared.client.delete(resources.HTTP_ROUTES, "bad", TENANT)
            await shared.client.delete(resources.HTTP_ROUTES, f"round-{number}", GOOD)
        await shared.lifted()
        await shared.add("last")
        await shared.client.delete(resources.HTTP_ROUTES, "last", GOOD)
