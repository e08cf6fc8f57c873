"""The chart with a kube-apiserver: what the controller and agents request, and what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from fakes import peers
from fakes.audit_log import requested_resource
from fakes.authority import Authority
from fakes.every_permission import KINDS, STEPS
from fakes.kinds import gateway_api_definitions, resource_of
from fakes.kubernetes import (
    BACKEND,
    CONTROLLER_ACCOUNT,
    CONTROLLERS,
    DATA_PLANES,
    NAMESPACE,
    Kubernetes,
    running_kubernetes,
)
from fakes.patience import SECONDS, until
from gatehouse.apis import resources
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.controller.informers import (
    BUNDLE_VERSION_ANNOTATION,
    PROVISIONED,
    Informers,
    watched_resources,
)
from gatehouse.controller.provisioner import names
from gatehouse.kube import client as kube
from gatehouse.kube.store import Changes
from gatehouse.kube.watch_decoder import MALFORMED_EVENT
from gatehouse.standalone import echo
from kube_base.types.resource import Resource

PORTS = {"gatehouse-nginx": 8080, "gatehouse-envoy": 8090}
"""Ports of Gateways by class: one machine has the sockets of both data planes."""
OTHER_KINDS = """
- kind: ReferenceGrant
  metadata: {name: r, namespace: kinds}
  spec:
    from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: other}]
    to: [{group: '', kind: Service}]
- {kind: NginxProxy, metadata: {name: n, namespace: kinds}, spec: {}}
- kind: RateLimitCondition
  metadata: {name: r}
  spec: {upstreamCluster: kinds.example, instance: i, limitItemConfigurations: []}
- {kind: DNSEndpoint, metadata: {name: d, namespace: kinds}, spec: {}}
- {kind: Secret, metadata: {name: s, namespace: kinds}}
- kind: DaemonSet
  metadata: {name: d, namespace: kinds}
  spec:
    selector: {matchLabels: {app: d}}
    template: {metadata: {labels: {app: d}}, spec: {containers: [{name: c, image: i}]}}
"""
"""Objects of watched kinds that neither ``kinds.yaml`` has nor a Gateway gets."""

BUNDLES = resources.CLUSTER_TRUST_BUNDLES

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed_chart(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kubernetes]:
    """The installed chart with two controllers, and a backend."""
    async with running_kubernetes(tmp_path_factory.mktemp("kubernetes")) as running:
        for definition in gateway_api_definitions():
            await running.client.create(resources.DEFINITIONS, definition)
        await running.install()
        for address in CONTROLLERS:
            await running.start_controller(address)
        async with echo.serve_echo({(BACKEND, 9080): "app"}):
            yield running


async def test_controllers_become_ready_and_one_has_the_label(installed_chart: Kubernetes) -> None:
    await until(lambda: controllers_are_ready(installed_chart, *CONTROLLERS))


async def controllers_are_ready(installed_chart: Kubernetes, *addresses: str) -> bool:
    statuses = [(await installed_chart.health(address))[0] for address in addresses]
    return {*statuses} == {200} and bool(await installed_chart.leader())


@pytest.mark.parametrize("gateway_class", PORTS)
async def test_gateway_is_provisioned_and_served(
    installed_chart: Kubernetes, gateway_class: str
) -> None:
    """In a namespace with the Pod Security Standard `restricted`. The test is what runs Pods and
    gives Services addresses."""
    client, address, port = installed_chart.client, DATA_PLANES[gateway_class], PORTS[gateway_class]
    for manifest in application(gateway_class, port):
        await client.create(resource_of(manifest["kind"]), manifest)
    workload = await until(lambda: found(client, resources.DEPLOYMENTS, gateway_class))
    service = await until(lambda: found(client, resources.SERVICES, gateway_class))
    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
    name = service["metadata"]["name"]
    await client.patch(resources.SERVICES, name, ingress, gateway_class, subresource="status")
    await installed_chart.start_data_plane(workload, address)
    await until(lambda: answers(address, port, "/"))

    async def programmed() -> bool:
        gateway = await client.get(resources.GATEWAYS, "web", gateway_class)
        return any(
            (one["type"], one["status"]) == ("Programmed", "True")
            for one in gateway.get("status", {}).get("conditions", ())
        )

    await until(programmed)


async def test_every_kind_with_a_status_gets_it(installed_chart: Kubernetes) -> None:
    await installed_chart.apply(yaml.safe_load_all(KINDS.read_text()))
    reporting = {*combined.KINDS.with_status, resources.EXTERNAL_LOAD_BALANCERS}
    missing = {resource.kind for resource in reporting}

    async def reported() -> bool:
        for resource in reporting:
            listed = await installed_chart.client.list(resource)
            if all(up_to_date(item) for item in listed.items) and listed.items:
                missing.discard(resource.kind)
        return not missing

    try:
        await until(reported)
    except TimeoutError:
        raise AssertionError(f"no status: {', '.join(sorted(missing))}") from None


async def test_informer_of_every_kind_receives_changes(
    installed_chart: Kubernetes, tmp_path: Path
) -> None:
    """With the permissions of the controller. Each watch delivers more than its first event."""
    await installed_chart.client.create(resources.DEFINITIONS, dns_endpoints())
    received: set[tuple[str, str, str]] = set()
    versions: list[gateway_api.CRDVersions] = []

    def receive(resource: Resource, changes: Changes) -> None:
        for (_, name), change in changes.items():
            annotations = (change.new or {"metadata": {}})["metadata"].get("annotations") or {}
            received.add((resource.kind, name, annotations.get("test", "")))

    async with await installed_chart.controller_client() as client:
        missing: dict[Resource, str] = {}
        informers = Informers(client, receive, versions.append, missing.__setitem__)
        async with running(informers):
            unserved = {BUNDLES} if peers.KUBERNETES < "v1.37" else set()
            await until(_constant(lambda: {kind for kind in missing if missing[kind]} == unserved))
            await installed_chart.apply(yaml.safe_load(OTHER_KINDS))
            if not unserved:
                spec = {"trustBundle": Authority(tmp_path).pem.decode()}
                bundle = {**BUNDLES.type_meta, "metadata": {"name": "b"}, "spec": spec}
                await installed_chart.apply(iter([bundle]))
            for resource in set(watched_resources(combined.KINDS)) - unserved:
                objects = informers.by_kind[resource.kind].objects
                await until(_constant(objects.__len__))
                name = next(iter(objects))
                for number in ("1", "2"):
                    await annotate(installed_chart.client, resource, name, {"test": number})
                    change = (resource.kind, name[1], number)
                    await until(_constant(partial(received.__contains__, change)))
            # Definitions are watched without their content.
            name = ("", f"{resources.UDP_ROUTES.plural}.{resources.UDP_ROUTES.group}")
            for version in ("v1.6.0", "v1.6.1"):
                annotation = {BUNDLE_VERSION_ANNOTATION: version}
                await annotate(installed_chart.client, resources.DEFINITIONS, name, annotation)
                await until(_constant(partial(_is_seen, versions, name[1], version)))


@contextlib.asynccontextmanager
async def running(informers: Informers) -> AsyncIterator[None]:
    """Run informers, all of which are synchronized."""
    synchronized = asyncio.Event()

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            await informers.start(group)
            synchronized.set()

    task = asyncio.create_task(run())
    try:
        await asyncio.wait_for(synchronized.wait(), SECONDS)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_deleted_objects_of_a_gateway_come_back(installed_chart: Kubernetes) -> None:
    client = installed_chart.client
    selector = f"{names.GATEWAY_NAME}=gw"
    deleted: set[str] = set()
    kinds = {*PROVISIONED, resources.SERVICES} - {resources.DAEMON_SETS}
    for resource in kinds:
        (item,) = (await client.list(resource, "kinds", label_selector=selector)).items
        deleted.add(item["metadata"]["uid"])
        await client.delete(resource, item["metadata"]["name"], "kinds")

    async def are_back() -> bool:
        uids = set()
        for resource in kinds:
            listed = await client.list(resource, "kinds", label_selector=selector)
            uids |= {item["metadata"]["uid"] for item in listed.items}
        return len(uids) == len(kinds) and not uids & deleted

    await until(are_back)


async def test_controllers_may_do_what_they_do(installed_chart: Kubernetes) -> None:
    """No request is denied or malformed, and no watch ends because of its events."""
    events = installed_chart.requests()
    codes = {event["responseStatus"]["code"] for event in events}
    # 429 is the answer about a kind whose definition has just been created.
    assert codes <= {200, 201, 404, 409, 429}
    assert {event["verb"] for event in events} >= {"list", "create", "update", "patch"}
    # The server ends watches, too: of a kind whose definition is new, and of a client that it
    # finds slow.
    errors = [
        record["error"]
        for address in CONTROLLERS
        for record in map(json.loads, installed_chart.log(address).splitlines())
        if record["event"] == "watch interrupted"
    ]
    assert [error for error in errors if MALFORMED_EVENT in error] == []


async def test_crash_of_a_data_plane_is_an_event_of_its_gateway(
    installed_chart: Kubernetes,
) -> None:
    client, gateway_class = installed_chart.client, "gatehouse-nginx"
    installed_chart.kill(DATA_PLANES[gateway_class])

    async def is_recorded() -> bool:
        events = (await client.list(resources.EVENTS, gateway_class)).items
        return any(
            (event["reason"], event["involvedObject"]["kind"]) == ("InstanceCrashed", "Gateway")
            for event in events
        )

    await until(is_recorded)
    await until(partial(answers, DATA_PLANES[gateway_class], PORTS[gateway_class], "/"))


async def test_no_permission_of_the_controllers_is_unused(installed_chart: Kubernetes) -> None:
    """Of the controller's roles in the chart."""
    run = installed_chart.administrator.kubectl
    for name, spec, request in STEPS:
        patch = ("--type", "merge", "--patch", json.dumps({"spec": spec}))
        await asyncio.to_thread(run, "patch", name, "--namespace", "kinds", *patch)
        await until(_constant(partial(has_requested, installed_chart, request)))
    get = installed_chart.administrator.get
    roles = [
        await asyncio.to_thread(get, "clusterrole", "gatehouse-controller"),
        await asyncio.to_thread(get, "role", "gatehouse", "--namespace", NAMESPACE),
    ]
    unused: list[str] = []

    def all_are_used() -> bool:
        unused[:] = installed_chart.audit.unused(CONTROLLER_ACCOUNT, roles)
        return not unused

    try:
        await until(_constant(all_are_used))
    except TimeoutError:
        raise AssertionError(f"unused: {', '.join(unused)}") from None


def has_requested(installed_chart: Kubernetes, request: str) -> bool:
    """Return whether a controller has sent a request such as ``create services`` for `kinds`."""
    return any(
        f"{event['verb']} {requested_resource(event)}" == request
        for event in installed_chart.requests()
        if event.get("objectRef", {}).get("namespace") == "kinds"
    )


async def test_standby_serves_agents_after_the_leader_ended(installed_chart: Kubernetes) -> None:
    leader = await installed_chart.leader()
    (standby,) = {*CONTROLLERS} - {leader}
    await installed_chart.end(leader)

    async def leads() -> bool:
        return await installed_chart.leader() == standby

    await until(leads)
    for gateway_class in PORTS:
        later = route(gateway_class, "later", "/later")
        await installed_chart.client.create(resources.HTTP_ROUTES, later)
    for gateway_class, port in PORTS.items():
        address = DATA_PLANES[gateway_class]
        await until(partial(answers, address, port, "/later"))


def application(gateway_class: str, port: int) -> Iterator[dict[str, Any]]:
    """Yield a namespace of the class's name, with a Gateway and a route to the backend."""
    namespace = gateway_class
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    yield {"kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    metadata = {"name": "app", "namespace": namespace}
    yield {"kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}
    yield {
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "app"}},
        "addressType": "IPv4",
        "ports": [{"port": 9080}],
        "endpoints": [{"addresses": [BACKEND], "conditions": {"ready": True}}],
    }
    yield {
        "kind": "Gateway",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "gatewayClassName": gateway_class,
            "listeners": [{"name": "http", "port": port, "protocol": "HTTP"}],
        },
    }
    yield route(namespace, "app", "/")


def route(namespace: str, name: str, path: str) -> dict[str, Any]:
    match = {"path": {"type": "Exact", "value": path}}
    rule = {"matches": [match], "backendRefs": [{"name": "app", "port": 80}]}
    return {
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [{"name": "web"}], "rules": [rule]},
    }


def dns_endpoints() -> dict[str, Any]:
    """Return a definition of the kind of external-dns, which clusters may have."""
    resource = resources.DNS_ENDPOINTS
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/external-dns/pull/2007"
            },
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"kind": resource.kind, "plural": resource.plural},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


async def annotate(
    client: kube.Client, resource: Resource, name: tuple[str, str], annotations: dict[str, str]
) -> None:
    await client.patch(resource, name[1], {"metadata": {"annotations": annotations}}, name[0])


async def found(client: kube.Client, resource: Resource, namespace: str) -> Any:
    """Return the object that the Gateway of a namespace got; None if there is none yet."""
    selector = f"{names.GATEWAY_NAME}=web"
    return next(iter((await client.list(resource, namespace, label_selector=selector)).items), None)


async def answers(address: str, port: int, path: str) -> bool:
    async with aiohttp.ClientSession() as session:
        with contextlib.suppress(aiohttp.ClientError):
            async with session.get(f"http://{address}:{port}{path}") as response:
                return response.status == 200
    return False


def all_conditions(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the conditions of a status, at any depth."""
    if isinstance(value, dict):
        yield from value.get("conditions", ())
        value = [item for key, item in value.items() if key != "conditions"]
    if isinstance(value, list):
        for item in value:
            yield from all_conditions(item)


def up_to_date(item: Mapping[str, Any]) -> bool:
    """Return whether an object has a condition about its present generation."""
    generation = item["metadata"].get("generation")
    return any(
        one.get("observedGeneration") == generation
        for one in all_conditions(item.get("status") or {})
    )


def _is_seen(versions: list[gateway_api.CRDVersions], name: str, version: str) -> bool:
    return (name, version) in versions[-1].versions


def _constant(condition: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    """Return a condition for :func:`until` that waits for nothing itself."""

    async def evaluate() -> object:
        return condition()

    return evaluate
