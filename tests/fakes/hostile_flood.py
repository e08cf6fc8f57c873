"""A tenant that writes thousands of hostile objects, beside a tenant with good routes."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from fakes import hostile_objects
from fakes.durations import pace
from fakes.installation import Installation
from fakes.kinds import resource_of
from fakes.shared_gateway import shared_gateway
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken
from gatehouse.runtime import procfs
from gatehouse.standalone import process_records
from kube_base.types.resource import Resource

Object = dict[str, Any]

WRITERS = 8
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
PARTS = ("apiserver", "controller", "node")
GROUPS = [
    "",
    "discovery.k8s.io",
    "gatehouse.dev",
    "gateway.networking.k8s.io",
    "gateway.networking.x-k8s.io",
    "gateway.nginx.org",
    "inference.networking.k8s.io",
]

WORLD = (
    """
kind: Namespace
apiVersion: v1
metadata: {name: gh}
---
kind: Namespace
apiVersion: v1
metadata: {name: good}
---
kind: Namespace
apiVersion: v1
metadata: {name: evil}
---
"""
    + shared_gateway("gh", "CLASS")
    + """\
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: own, namespace: good}
spec:
  gatewayClassName: CLASS
  listeners: [{name: http, port: 8080, protocol: HTTP}]
---
kind: Service
apiVersion: v1
metadata: {name: app, namespace: good}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: app-1, namespace: good, labels: {kubernetes.io/service-name: app}}
addressType: IPv4
ports: [{port: PORT}]
endpoints: [{addresses: [HOST]}]
---
kind: Service
apiVersion: v1
metadata: {name: moving, namespace: good}
spec: {ports: [{port: 80}]}
"""
)


def world(gateway_class: str, backend: tuple[str, int]) -> list[Object]:
    """Return a Gateway that all tenants share, and the good tenant's Gateway and Service."""
    text = WORLD.replace("CLASS", gateway_class).replace("HOST", backend[0])
    return list(yaml.safe_load_all(text.replace("PORT", str(backend[1]))))


def moving_endpoints(backend: tuple[str, int]) -> Object:
    """Return the EndpointSlice of the good tenant's Service `moving`."""
    labels = {"kubernetes.io/service-name": "moving"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "moving-1", "namespace": "good", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"port": backend[1]}],
        "endpoints": [{"addresses": [backend[0]]}],
    }


def good_route(
    name: str, *gateways: tuple[str, str], service: str = "app", version: str = "1"
) -> Object:
    """Return a route of the good tenant, whose hostname is its name.

    ``version``: value of the header X-Version in responses.
    """
    header = {"set": [{"name": "X-Version", "value": version}]}
    rule = {
        "filters": [{"type": "ResponseHeaderModifier", "responseHeaderModifier": header}],
        "backendRefs": [{"name": service, "port": 80}],
    }
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": "good"},
        "spec": {
            "parentRefs": [{"namespace": space, "name": gateway} for space, gateway in gateways],
            "hostnames": [f"{name}.good.example"],
            "rules": [rule],
        },
    }


@cache
def objects(count: int, seed: int) -> tuple[list[Object], int]:
    """Return at least `count` objects of the hostile tenant, and how many are hostile."""
    result: list[Object] = []
    hostile = 0
    for number in itertools.count():
        tenant = hostile_objects.tenant(number, seed)
        namespaces = {raw["metadata"]["namespace"] for raw in tenant.objects}
        result += (_namespace(name) for name in sorted(namespaces))
        result += map(_without_address, tenant.objects)
        hostile += len(tenant.hostile)
        if len(result) >= count:
            return result, hostile
    raise AssertionError("unreachable")


def _namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _without_address(raw: Object) -> Object:
    """Return an object as a client writes it: another Service has the address of its case."""
    if raw["kind"] != "Service":
        return raw
    spec = {key: value for key, value in raw["spec"].items() if not key.startswith("clusterIP")}
    return raw | {"spec": spec}


@asynccontextmanager
async def attacker(admin: kube.Client, ca: bytes) -> AsyncIterator[kube.Client]:
    """Yield a client with all rights to the kinds of a tenant, and no others."""
    metadata = {"name": "attacker"}
    role = {"metadata": metadata, "rules": [{"verbs": ["*"], "apiGroups": GROUPS}]}
    role["rules"][0]["resources"] = ["*"]  # type: ignore[index]
    subject = {"kind": "ServiceAccount", "name": "attacker", "namespace": "evil"}
    binding = {
        "metadata": metadata,
        "roleRef": {"apiGroup": ROLES.group, "kind": "ClusterRole", "name": "attacker"},
        "subjects": [subject],
    }
    await admin.create(ROLES, role)
    await admin.create(BINDINGS, binding)
    await admin.create(resources.SERVICE_ACCOUNTS, {"metadata": metadata | {"namespace": "evil"}})
    token, _ = await admin.create_token("evil", "attacker", [], 3600)
    configuration = Configuration(admin.server, StaticToken(token), ca=ca)
    async with kube.Client(configuration) as client:
        yield client


async def write(client: kube.Client, hostile: list[Object]) -> Counter[str]:
    """Write all objects with some concurrency; return what the API server answered."""
    answers: Counter[str] = Counter()
    # A namespace comes before its objects.
    for kinds in (True, False):
        pending = iter([raw for raw in hostile if (raw["kind"] == "Namespace") is kinds])
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(_write(client, pending, answers))
    return answers


async def _write(client: kube.Client, pending: Iterator[Object], answers: Counter[str]) -> None:
    for raw in pending:
        while True:
            try:
                await client.create(resource_of(raw["kind"]), raw)
                answers["accepted"] += 1
            except kube.AlreadyExists:
                answers["accepted"] += 1
            except kube.ApiError as error:
                if error.status == 429:
                    answers["delayed"] += 1
                    await pace(0.2)
                    continue
                answers[f"{error.status} {raw['kind']}: {error}"[:300]] += 1
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                answers[repr(error)] += 1
            break


class Process(msgspec.Struct, frozen=True):
    """A process of an installation."""

    name: str
    record: process_records.ProcessRecord

    def resident_bytes(self) -> int:
        """Return the largest resident memory that the process ever had."""
        text = Path(f"/proc/{self.record.pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) << 10


def processes(installation: Installation) -> dict[str, Process]:
    """Return the processes of an installation: its parts, and the session of each agent."""
    result = {name: Process(name, installation.part(name)) for name in PARTS}
    for path in installation.state.glob("node/pods/*/process.json"):
        record = process_records.recorded(path)
        if record is None or not record.alive():
            continue
        pod = path.parent.name
        result[f"{pod}/agent"] = Process(f"{pod}/agent", record)
        for pid in procfs.children(record.pid):
            name = f"{pod}/{Path(procfs.process_executable(pid)).name}-{pid}"
            started = process_records.start_time(pid)
            if started is not None:
                result[name] = Process(name, process_records.ProcessRecord(pid, started))
    return result
