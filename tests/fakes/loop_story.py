"""The control loop of the controller, with a fleet and a status writer that do what a test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import yaml

from fakes import patience
from fakes.kinds import resource_of
from gatehouse.compiler.frontends import gateway_api
from gatehouse.controller.compilation import Compilation
from gatehouse.controller.history_order import last_change
from gatehouse.controller.loop import Loop
from gatehouse.controller.pipelines import nginx_pipeline
from gatehouse.controller.provisioner.manifests import ProvisioningPlan
from gatehouse.controller.publisher import Publisher
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport
from gatehouse.dataplane.file_set import FileSet
from gatehouse.incremental.query import Key
from gatehouse.kube.store import Change

QUIET_LOOKS = 6
"""Number of looks without a pass after which the loop has nothing left to do."""

BASE = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: gatehouse-nginx, generation: 1, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {controllerName: gatehouse.dev/nginx}
---
apiVersion: v1
kind: Namespace
metadata: {name: ns, labels: {kubernetes.io/metadata.name: ns}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  {name: gw, namespace: ns, uid: u-gw, generation: 1, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  gatewayClassName: gatehouse-nginx
  listeners:
  - {name: http, port: 8080, protocol: HTTP, allowedRoutes: {namespaces: {from: Same}}}
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: ns}
spec: {ports: [{name: http, port: 80, targetPort: 9000, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: app-1, namespace: ns, labels: {kubernetes.io/service-name: app}}
addressType: IPv4
ports: [{name: http, port: 9000, protocol: TCP}]
endpoints: [{addresses: [127.0.0.1]}]
"""

ROUTE = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  {name: r, namespace: ns, generation: 1, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  parentRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]
  hostnames: [a.example]
  rules:
  - matches: [{path: {type: PathPrefix, value: /}}]
    backendRefs: [{group: "", kind: Service, name: app, port: 80, weight: 1}]
"""

GATEWAY: Key = ("Gateway", "ns", "gw")
HTTP_ROUTE: Key = ("HTTPRoute", "ns", "r")


class Fleet:
    """A delivery whose only instance does what the test says."""

    def __init__(self) -> None:
        self.on_report: Callable[[str], None] = lambda gateway: None
        self.bundles: list[FileSet] = []
        self.instance: InstanceReport | None = None
        self.equipment: dict[str, Any] = {}
        """Fields of every report."""

    def publish(self, gateway: str, bundle: FileSet) -> None:
        assert gateway == "ns/gw"
        self.bundles.append(bundle)
        self.say(error="")

    def withdraw(self, gateway: str) -> None:
        self.bundles.clear()

    def report(self, gateway: str) -> DataPlaneReport:
        desired = self.bundles[-1].version if self.bundles else ""
        instances = (self.instance,) if self.instance else ()
        return DataPlaneReport(gateway, desired, instances)

    def say(
        self, *, confirmed: bool = False, error: str = "", bundle: int = -1, **more: Any
    ) -> None:
        desired = self.bundles[-1].version if self.bundles else ""
        before = self.instance.confirmed if self.instance else ""
        now = self.bundles[bundle].version if confirmed else before
        self.instance = InstanceReport(
            "pod", desired, now, error, "nginx/1.31.3", **self.equipment, **more
        )
        self.on_report("ns/gw")


class Written:
    """Statuses as the loop wanted them."""

    def __init__(self) -> None:
        self.now: dict[Key, gateway_api.GatewayApiStatus] = {}

    def set_desired(self, key: Key, status: gateway_api.GatewayApiStatus) -> None:
        self.now[key] = status

    def set_record(self, key: Key, record: object) -> None:
        pass

    def forget(self, key: Key) -> None:
        self.now.pop(key, None)

    def enqueue(self, key: Key) -> None:
        pass

    def condition(self, key: Key, kind: str) -> dict[str, Any]:
        status = (
            gateway_api.merge_gateway_api_status(None, self.now[key], "2026-01-01T00:00:00Z") or {}
        )
        conditions = status.get("conditions") or status["parents"][0]["conditions"]
        return next(item for item in conditions if item["type"] == kind)


class Story:
    def __init__(self) -> None:
        self.fleet, self.written = Fleet(), Written()
        self.provisioned: list[Mapping[Key, ProvisioningPlan | None]] = []
        self.fetched: list[tuple[gateway_api.UrlFetch, ...]] = []
        self.objects: dict[Key, Any] = {}
        """Objects as applied."""
        self.compilation = Compilation(gateway_api.ControllerSettings(bind="any"))
        self.loop = Loop(
            self.compilation,
            Publisher({gateway_api.NGINX: nginx_pipeline(self.fleet)}),
            self.written,  # type: ignore[arg-type]
            self.provisioned.append,
            self.fetched.append,
            changed_at=lambda key: last_change(self.objects.get(key)),
        )
        self.fleet.on_report = self.loop.on_report

    def apply(self, text: str, *, delete: bool = False) -> None:
        for raw in yaml.safe_load_all(text):
            resource = resource_of(raw["kind"])
            name = (raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
            key = (resource.kind, *name)
            change = Change(self.objects.get(key), None if delete else raw)
            self.objects[key] = change.new
            self.loop.on_changes(resource, {name: change})

    async def until(self, holds: Callable[[], object]) -> None:
        await patience.until(holds)

    async def quiet(self) -> None:
        """Wait until the loop has nothing left to do.

        It runs between each two looks, regardless of the time that they take.
        """
        passes, looks = -1, 0
        while looks < QUIET_LOOKS:
            looks = looks + 1 if passes == self.loop.passes else 0
            passes = self.loop.passes
            await patience.pause()


@pytest.fixture
async def story() -> AsyncIterator[Story]:
    story = Story()
    task = asyncio.create_task(story.loop.run())
    yield story
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
