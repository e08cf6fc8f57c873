"""The control plane that bench/agents.py measures: the real loop and server, objects made up here.

Its Gateways have a few routes each; reviews of tokens take 2 ms and find in the token who it is.
A line ``change`` on its input changes a route of the first Gateway; on its output is a line of JSON
for whatever it has to say.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import route_propagation as propagation
import structlog
import uvloop

from gatehouse.apis import resources
from gatehouse.compiler.frontends import gateway_api
from gatehouse.controller.compilation import Compilation
from gatehouse.controller.frozen_heap import FrozenHeap
from gatehouse.controller.loop import Loop
from gatehouse.controller.pipelines import nginx_pipeline
from gatehouse.controller.publisher import Publisher
from gatehouse.incremental.query import Key
from gatehouse.kube.store import Change
from gatehouse.transports.server import AgentServer, Identity
from kube_base.types.resource import Resource

REVIEW_SECONDS = 0.002
LOOK_SECONDS = 0.25
"""Interval in seconds between counts of confirmed instances."""

Object = dict[str, Any]
_ENDPOINTS = {"endpoints": [{"addresses": ["127.90.0.1"]}, {"addresses": ["127.90.0.2"]}]}
_SEEN = {"generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}


async def review(token: str) -> Identity:
    """Return the identity of ``<pod>@<gateway>``."""
    await asyncio.sleep(REVIEW_SECONDS)
    instance, _, gateway = token.partition("@")
    return Identity(gateway, instance)


class Statuses:
    """Takes what would be written."""

    def set_desired(self, key: Key, status: gateway_api.GatewayApiStatus) -> None:
        """Write nothing."""

    def set_record(self, key: Key, record: object) -> None:
        """Record nothing."""

    def forget(self, key: Key) -> None:
        """Forget nothing."""

    def enqueue(self, key: Key) -> None:
        """Check nothing."""


def _class() -> Object:
    return {
        "apiVersion": resources.GATEWAY_CLASSES.api_version,
        "kind": "GatewayClass",
        "metadata": {"name": "gatehouse-nginx"},
        "spec": {"controllerName": "gatehouse.dev/nginx"},
    }


def _gateway(number: int) -> Object:
    gateway = propagation.gateway()
    gateway["metadata"].update(name=f"g{number}", uid=f"u-{number}")
    return gateway


def _route(gateway: int, number: int, value: str = "0") -> Object:
    name = f"g{gateway}-r{number}"
    route = propagation.route(name, number % 10)
    spec = route["spec"]
    spec["parentRefs"] = [
        {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": f"g{gateway}"}
    ]
    edit = {"set": [{"name": "x-version", "value": value}]}
    (rule,) = spec["rules"]
    rule["filters"] = [{"type": "ResponseHeaderModifier", "responseHeaderModifier": edit}]
    rule["backendRefs"][0].update(group="", kind="Service", weight=1)
    return route


class Plane:
    """The loop, its server, and its objects."""

    def __init__(self, gateways: int, routes: int, changes: int) -> None:
        self.server = AgentServer(review)
        self.loop = Loop(
            Compilation(gateway_api.ControllerSettings(bind="any"), FrozenHeap()),
            Publisher({gateway_api.NGINX: nginx_pipeline(self.server)}),
            Statuses(),  # type: ignore[arg-type]
            lambda _found: None,
            lambda _fetches: None,
        )
        self.server.events.on_report = self.loop.on_report
        self._gateways = gateways
        self._changes = changes
        self._put(resources.GATEWAY_CLASSES, _class())
        for number in range(10):
            for resource, spec in propagation.service(number):
                self._put(resource, {**spec, **_ENDPOINTS} if "endpoints" in spec else spec)
        for gateway in range(gateways):
            self._put(resources.GATEWAYS, _gateway(gateway))
            for number in range(routes):
                self._put(resources.HTTP_ROUTES, _route(gateway, number))
        self._put(resources.HTTP_ROUTES, _route(0, 0, str(changes)))

    def _put(self, resource: Resource, spec: Object) -> None:
        metadata = spec["metadata"]
        obj = {**spec, "metadata": {**metadata, **_SEEN}}
        name = (metadata.get("namespace", ""), metadata["name"])
        self.loop.on_changes(resource, {name: Change(None, obj)})

    def change(self) -> None:
        """Change one route of the first Gateway."""
        self._changes += 1
        self._put(resources.HTTP_ROUTES, _route(0, 0, str(self._changes)))

    def counts(self) -> tuple[int, int, str]:
        """Return the numbers of connected and of current instances, and the desired version."""
        connected = confirmed = 0
        for number in range(self._gateways):
            report = self.server.report(f"{propagation.NAMESPACE}/g{number}")
            connected += len(report.instances)
            if report.desired:
                confirmed += sum(
                    instance.confirmed == report.desired for instance in report.instances
                )
        return connected, confirmed, self.server.report(f"{propagation.NAMESPACE}/g0").desired


def say(**what: object) -> None:
    """Print a line of JSON."""
    print(json.dumps(what), flush=True)


async def _look(plane: Plane) -> None:
    last = None
    while True:
        counts = plane.counts()
        if counts != last:
            connected, confirmed, version = last = counts
            say(at=time.monotonic(), connected=connected, confirmed=confirmed, version=version)
        await asyncio.sleep(LOOK_SECONDS)


async def run(options: argparse.Namespace) -> None:
    """Serve until the input ends."""
    plane = Plane(options.gateways, options.routes, options.changes)
    port = await plane.server.start(
        f"127.0.0.1:{options.port}", options.pki / "tls.crt", options.pki / "tls.key"
    )
    say(port=port)
    tasks = [asyncio.create_task(plane.loop.run()), asyncio.create_task(_look(plane))]
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        say(changed=time.monotonic())
        plane.change()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await plane.server.stop(0.0)


def main() -> None:
    """Run one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pki", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--gateways", type=int, required=True)
    parser.add_argument("--routes", type=int, required=True)
    parser.add_argument("--changes", type=int, default=0, help="of it, before it was started")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    uvloop.run(run(options))


if __name__ == "__main__":
    main()
