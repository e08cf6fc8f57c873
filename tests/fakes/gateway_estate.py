"""A whole controller over an estate of Gateways, with an API server that is a few dictionaries.

Everything from a watch's events to the writes and the messages to agents is real, without sockets,
and runs in the test's own process. So a test can count the cost of a change.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import gc
import itertools
import sys
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from cryptography import x509

from fakes.authority import Authority
from fakes.durations import pace
from gatehouse.apis import resources
from gatehouse.compiler.frontends import combined
from gatehouse.controller import main as controllers
from gatehouse.controller.class_names import CLASSES
from gatehouse.controller.frozen_heap import FrozenHeap
from gatehouse.controller.gateway_provisioner import PROVISION_DEBOUNCE_SECONDS
from gatehouse.controller.informers import watched_resources
from gatehouse.controller.options import ControllerOptions
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.ads_messages import AdsRequest
from gatehouse.dataplane.xds.resources import ADD_ORDER
from gatehouse.kube import client as kube
from gatehouse.kube.watch_decoder import WatchEvent
from gatehouse.transports.agents.session import ApplyResponse, HasVersion, Register
from gatehouse.transports.agents.stream import Apply
from gatehouse.transports.agents.token_auth import Identity
from kube_base.types.resource import Resource

Object = dict[str, Any]

NGINX, ENVOY = "gatehouse-nginx", "gatehouse-envoy"

PAUSE_SECONDS = 1.2 * PROVISION_DEBOUNCE_SECONDS
"""Seconds without any news after which all is at rest."""


RESOURCES = {resource.kind: resource for resource in watched_resources(combined.KINDS)}


class Store(kube.Client):
    """Objects of the API server. Writes come back as watch events."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.written: Counter[tuple[str, str]] = Counter()
        """Requests of the controller that change something, by verb and kind."""
        self.listed = 0
        """Number of objects read for lists of the controller."""
        self.tell: Callable[[Resource, WatchEvent], None] = lambda *_: None
        self._numbers = itertools.count(1)

    def put(self, resource: Resource, obj: Mapping[str, Any]) -> Object:
        """Have an object, and tell it."""
        metadata = obj["metadata"]
        key = (resource.kind, metadata.get("namespace", ""), metadata["name"])
        before, number = self.objects.get(key), next(self._numbers)
        known: Object = before["metadata"] if before else {"uid": f"u{number}", "generation": 0}
        same = before is not None and before.get("spec") == obj.get("spec")
        status = {"status": before["status"]} if before and "status" in before else {}
        stored = {
            **status,
            **obj,
            "metadata": {
                "creationTimestamp": "2026-01-01T00:00:00Z",
                **metadata,
                "uid": known["uid"],
                "generation": known["generation"] + (not same),
                "resourceVersion": str(number),
            },
        }
        self.objects[key] = stored
        self.tell(resource, WatchEvent("MODIFIED" if before else "ADDED", stored))
        return stored

    def take(self, other: Store) -> None:
        """Have what another has, without statuses and what was made for Gateways."""
        for (kind, _, _), obj in other.objects.items():
            metadata = obj["metadata"]
            if "ownerReferences" not in metadata:
                own_metadata = {
                    key: metadata[key] for key in ("name", "namespace", "labels") if key in metadata
                }
                bare = {key: value for key, value in obj.items() if key != "status"}
                self.put(RESOURCES[kind], {**bare, "metadata": own_metadata})

    def drop(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Have an object no longer, and tell it."""
        self.tell(
            resource, WatchEvent("DELETED", self.objects.pop((resource.kind, namespace, name)))
        )

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        try:
            return self.objects[(resource.kind, namespace, name)]
        except KeyError:
            raise kube.NotFound(404, "NotFound", name) from None

    async def list(self, resource: Resource, *_: Any, **__: Any) -> kube.ListResult:
        result = [obj for key, obj in self.objects.items() if key[0] == resource.kind]
        self.listed += len(result)
        return kube.ListResult(result, "1")

    async def create(self, resource: Resource, obj: Mapping[str, Any]) -> Object:
        self.written["create", resource.kind] += 1
        return self.put(resource, obj)

    async def update(self, resource: Resource, obj: Mapping[str, Any]) -> Object:
        self.written["update", resource.kind] += 1
        return self.put(resource, obj)

    async def update_status(self, resource: Resource, obj: Mapping[str, Any]) -> Object:
        self.written["status", resource.kind] += 1
        return self.put(resource, obj)

    async def delete(self, resource: Resource, name: str, namespace: str = "", **_: Any) -> None:
        self.written["delete", resource.kind] += 1
        if (resource.kind, namespace, name) not in self.objects:
            raise kube.NotFound(404, "NotFound", name)
        self.drop(resource, name, namespace)


def gateway(name: str, class_name: str, *ports: int) -> Object:
    """Return a Gateway with an HTTP listener at each port, and one HTTPS listener."""
    listeners: list[Object] = [
        {"name": f"p{port}", "port": port, "protocol": "HTTP"} for port in ports
    ]
    tls = {"certificateRefs": [{"name": f"{name}-tls"}]}
    listeners.append({"name": "tls", "port": 8443, "protocol": "HTTPS", "tls": tls})
    spec = {"gatewayClassName": class_name, "listeners": listeners}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def route(name: str, parent: str, service: str, path: str = "/") -> Object:
    """Return a route of one hostname to one Service."""
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": path}}],
        "backendRefs": [{"name": service, "port": 80}],
    }
    spec = {
        "parentRefs": [{"name": parent}],
        "hostnames": [f"{name}.example"],
        "rules": [rule],
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def service(name: str) -> Object:
    """Return a Service with one port."""
    ports = [{"name": "http", "port": 80, "targetPort": 9000, "protocol": "TCP"}]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"ports": ports}}


def endpoints(name: str, *addresses: str) -> Object:
    """Return the EndpointSlice of a Service."""
    labels = {"kubernetes.io/service-name": name}
    return {
        "metadata": {"name": f"{name}-1", "namespace": "default", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 9000, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address]} for address in addresses],
    }


def secret(name: str, pair: tuple[bytes, bytes]) -> Object:
    """Return a Secret with a certificate and its key, both in base64."""
    data = {"tls.crt": pair[0].decode(), "tls.key": pair[1].decode()}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "type": "kubernetes.io/tls",
        "data": data,
    }


class Agents:
    """The agents of all Gateways. They confirm every version."""

    def __init__(self, controller: controllers.Controller, group: asyncio.TaskGroup) -> None:
        self._nginx = controller.delivery._fleet
        self._envoys = controller.delivery.envoys.fleet
        self._group = group
        self.connected: dict[tuple[str, str, int], None] = {}
        self.told: Counter[str] = Counter()
        """Number of publications to the agents of each Gateway."""
        self.tasks: dict[str, list[asyncio.Task[None]]] = {}
        """By Gateway."""

    def connect(self, name: str, class_name: str, number: int, *, hangs: bool = False) -> None:
        """Have an agent of a Gateway connect. ``hangs``: it serves nothing that it receives."""
        serve = self._serve_nginx if class_name == NGINX else self._serve_envoy
        self.connected[name, class_name, number] = None
        identity = Identity(f"default/{name}", f"{name}-{number}")
        task = self._group.create_task(serve(identity, hangs=hangs))
        self.tasks.setdefault(name, []).append(task)

    async def disconnect(self, name: str) -> None:
        """Have all agents of a Gateway disconnect."""
        for key in [key for key in self.connected if key[0] == name]:
            del self.connected[key]
        for task in (tasks := self.tasks.pop(name, [])):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve_nginx(self, identity: Identity, *, hangs: bool) -> None:
        fleet = self._nginx
        about = Register("nginx", "nginx/1.31.3", (), frozenset({"endpoints"}))
        fleet.on_connect(identity, about)
        stream = fleet.open(identity)
        assert stream is not None
        fleet.receive(identity, HasVersion(""))
        try:
            while True:
                apply_request = await stream.next()
                assert isinstance(apply_request, Apply)
                self.told[identity.gateway] += 1
                if hangs:
                    await asyncio.Event().wait()
                fleet.receive(identity, ApplyResponse(apply_request.correlation))
        finally:
            fleet.close(stream)

    async def _serve_envoy(self, identity: Identity, *, hangs: bool) -> None:
        fleet = self._envoys
        stream = fleet.open(identity, delta.DeltaStream)
        assert stream is not None
        stream.node = delta.NodeInfo("envoy/1.40.0")
        conversation = stream.dialogue.conversation
        for type_url in ADD_ORDER:
            conversation.receive(AdsRequest(type_url, subscribe=("*",)))
        try:
            while True:
                stream.woken.clear()
                response = conversation.next()
                fleet.update_report(stream)
                if response is None:
                    await stream.woken.wait()
                    continue
                self.told[identity.gateway] += 1
                if hangs:
                    await asyncio.Event().wait()
                conversation.receive(AdsRequest(response.type_url, nonce=response.nonce))
        finally:
            fleet.close(stream)


class Estate:
    """Gateways, half of them of NGINX and half of Envoy, each with its routes; all is at rest."""

    def __init__(
        self, authority: Authority, store: Store | None = None, heap: FrozenHeap | None = None
    ) -> None:
        """``store``: of an estate that ended. This one is its next controller."""
        self.store = store or Store()
        self._authority = authority
        self._pair = self.pair("first.example")
        nowhere = authority.file.parent / "nothing"
        self.controller = controllers.Controller(
            self.store,
            ControllerOptions(
                kubeconfig=nowhere,
                agent_bind="127.0.0.1:1",
                agent_advertise="127.0.0.1:1",
                tls_cert=nowhere,
                tls_key=nowhere,
                ca=authority.file,
            ),
            heap,
        )
        self.store.tell = self._tell
        self.agents: Agents

    def pair(self, name: str) -> tuple[bytes, bytes]:
        """Return a certificate and its key, encoded as in a Secret."""
        certificate, key = self._authority.issue(name, x509.DNSName(name))
        return base64.b64encode(certificate.read_bytes()), base64.b64encode(key.read_bytes())

    def _tell(self, resource: Resource, event: WatchEvent) -> None:
        informer = self.controller.informers.by_kind.get(resource.kind)
        if informer is not None:
            # As it comes from a watch.
            informer._publish(informer._store.receive([event]))

    @contextlib.asynccontextmanager
    async def running(
        self, gateways: int, routes: int = 2, like: Estate | None = None
    ) -> AsyncIterator[None]:
        """Run it with so many Gateways, and so many routes of each, or with what another has."""
        for (kind, _, _), obj in self.store.objects.items():
            self._tell(RESOURCES[kind], WatchEvent("ADDED", obj))
        for kind in (NGINX, ENVOY):
            self.own(kind)
        self.store.put(resources.NAMESPACES, {"metadata": {"name": "default"}})
        for number in range(gateways):
            self.add(number, routes)
        if like is not None:
            self.store.take(like.store)
        controller = self.controller
        async with asyncio.TaskGroup() as group:
            self.agents = Agents(controller, group)
            tasks = [
                group.create_task(coroutine)
                for coroutine in (
                    controller.statuses.run(),
                    controller.provisioner.run(),
                    controller.loop.run(),
                    controller.owned_resources.run(),
                )
            ]
            for number in range(gateways):
                self.connect(number)
            for connection in like.agents.connected if like is not None else ():
                self.agents.connect(*connection)
            await self.rest()
            yield
            for task in (*tasks, *itertools.chain(*self.agents.tasks.values())):
                task.cancel()

    def own(self, kind: str, controller: str = "") -> None:
        """Have a GatewayClass name a controller: its own, if no other is given."""
        spec = {"controllerName": controller or CLASSES[kind]}
        self.store.put(resources.GATEWAY_CLASSES, {"metadata": {"name": kind}, "spec": spec})

    def class_of(self, number: int) -> str:
        return (NGINX, ENVOY)[number % 2]

    def add(self, number: int, routes: int = 2) -> None:
        """Make a Gateway with what it serves."""
        name = f"g{number}"
        self.store.put(resources.SECRETS, secret(f"{name}-tls", self._pair))
        for index in range(routes):
            one = f"{name}-r{index}"
            self.store.put(resources.SERVICES, service(one))
            self.store.put(resources.ENDPOINT_SLICES, endpoints(one, "10.0.0.1"))
            self.store.put(resources.HTTP_ROUTES, route(one, name, one))
        self.store.put(resources.GATEWAYS, gateway(name, self.class_of(number), 8080))

    async def remove(self, number: int, routes: int = 2) -> None:
        """Remove a Gateway with what it serves, and its agents."""
        name = f"g{number}"
        self.store.drop(resources.GATEWAYS, name, "default")
        self.store.drop(resources.SECRETS, f"{name}-tls", "default")
        for one in (f"{name}-r{index}" for index in range(routes)):
            self.store.drop(resources.HTTP_ROUTES, one, "default")
            self.store.drop(resources.ENDPOINT_SLICES, f"{one}-1", "default")
            self.store.drop(resources.SERVICES, one, "default")
        await self.agents.disconnect(name)

    def connect(self, number: int, first: int = 0, count: int = 1) -> None:
        """Have agents of a Gateway connect."""
        for instance in range(first, first + count):
            self.agents.connect(f"g{number}", self.class_of(number), instance)

    async def rest(self) -> None:
        """Wait until no write, publication or compile pass is pending."""
        state: Any = None
        while state != (state := self._seen()):
            await pace(PAUSE_SECONDS)

    def _seen(self) -> Any:
        publications, loop = self.agents.told.total(), self.controller.loop
        return loop.passes, publications, self.store.written.total()

    async def steps_of(self, change: Callable[[], object]) -> int:
        """Count what a change, and all that follows from it, has the interpreter do.

        Calls and lines: a loop over everything counts also where it calls nothing. Unlike time it
        is nearly the same in every run.
        """
        steps = 0

        def note(_: FrameType, __: str, ___: object) -> Any:
            nonlocal steps
            steps += 1
            return note

        before = sys.gettrace()
        sys.settrace(note)
        try:
            change()
            await self.rest()
        finally:
            sys.settrace(before)
        return steps


async def memory_with(gateways: int, authority: Authority) -> int:
    """Return the bytes of Python's memory with so many Gateways, including their objects."""
    estate = Estate(authority)
    tracemalloc.start()
    try:
        async with estate.running(gateways):
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


Change = Callable[[], object]


def changes(estate: Estate, kind: str) -> Iterator[tuple[str, str, Change]]:
    """Yield possible changes of one Gateway of a class, each with the Gateway's name."""
    number = (NGINX, ENVOY).index(kind)
    yield from _of_one(estate, f"g{number}", kind)
    number += 10_000

    def made() -> None:
        estate.add(number)
        estate.connect(number)

    yield "a new Gateway", f"g{number}", made
    gone = functools.partial(estate.store.drop, resources.GATEWAYS, f"g{number}", "default")
    yield "a Gateway that goes", f"g{number}", gone


def _of_one(estate: Estate, name: str, kind: str) -> Iterator[tuple[str, str, Change]]:
    store, one, renewed = estate.store, f"{name}-r0", estate.pair(f"{name}.example")
    objects = {
        "a route": (resources.HTTP_ROUTES, route(one, name, one, "/other")),
        "endpoints": (resources.ENDPOINT_SLICES, endpoints(one, "10.0.0.1", "10.0.0.2")),
        "a certificate": (resources.SECRETS, secret(f"{name}-tls", renewed)),
        "a listener": (resources.GATEWAYS, gateway(name, kind, 8080, 8081)),
    }
    for what, (resource, obj) in objects.items():
        yield what, name, functools.partial(store.put, resource, obj)
    yield "an agent", name, lambda: estate.connect(int(name[1:]), first=1)
