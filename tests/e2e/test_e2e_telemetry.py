"""XTelemetryPolicy of an installation with a real Envoy, from objects to a collector."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes import collectors
from fakes.installation import HOST_NET, address, apply, get, hello
from fakes.installation_fixtures import backends, client
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["backends", "client", "installation"]

pytestmark = pytest.mark.process

POLICIES = resources.TELEMETRY_POLICIES
HOST = f"{HOST_NET}.252"
OTHER = "observability"


@pytest.fixture
async def collector() -> AsyncIterator[collectors.InProcessCollector]:
    async with collectors.collecting(HOST) as running:
        yield running


def collector_service(port: int) -> list[dict[str, Any]]:
    """Return the collector's Service in a namespace of its own."""
    labels = {"kubernetes.io/service-name": "collector"}
    return [
        {**resources.NAMESPACES.type_meta, "metadata": {"name": OTHER}},
        {
            **resources.SERVICES.type_meta,
            "metadata": {"name": "collector", "namespace": OTHER},
            "spec": {"ports": [{"name": "otlp", "port": 4317, "targetPort": port}]},
        },
        {
            **resources.ENDPOINT_SLICES.type_meta,
            "metadata": {"name": "collector-1", "namespace": OTHER, "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "otlp", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [HOST]}],
        },
    ]


def grant() -> dict[str, Any]:
    source = {"group": POLICIES.group, "kind": POLICIES.kind, "namespace": "default"}
    return {
        **resources.REFERENCE_GRANTS.type_meta,
        "metadata": {"name": "collector", "namespace": OTHER},
        "spec": {"from": [source], "to": [{"group": "", "kind": "Service"}]},
    }


def policy(name: str, tracing: dict[str, Any]) -> dict[str, Any]:
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"}
    return {
        **POLICIES.type_meta,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"targetRefs": [target], "tracing": tracing},
    }


ENABLED: dict[str, Any] = {
    "mode": "Enabled",
    "provider": {
        "backendRef": {"name": "collector", "namespace": OTHER, "port": 4317},
        "headers": [{"name": "X-Tenant", "value": "shop"}],
    },
    "serviceName": "front",
    "spanName": "every request",
    "attributes": [
        {"name": "env", "sourceType": "Literal", "literalValue": 'a "b" %REQ(X)% $1'},
        {"name": "user", "sourceType": "Header", "headerName": "X-User"},
        {"name": "method", "sourceType": "Attribute", "attributeKey": "http.request.method"},
    ],
}


async def expect(client: kube.Client, name: str, type_: str, status: str, reason: str) -> None:
    """Wait for a condition of a policy."""
    got: Any = None

    async def is_so() -> bool:
        nonlocal got
        got = (await client.get(POLICIES, name, "default")).get("status")
        return any(
            (entry["type"], entry["status"], entry["reason"]) == (type_, status, reason)
            for ancestor in (got or {}).get("ancestors") or ()
            if ancestor["controllerName"] == "gatehouse.dev/envoy"
            for entry in ancestor["conditions"]
        )

    await until(is_so, lambda: str(got))


async def test_policy_of_a_gateway_sends_spans_to_a_collector_that_a_grant_allows(
    client: kube.Client, backends: None, collector: collectors.InProcessCollector
) -> None:
    await apply(client, [*collector_service(collector.port), *hello("gatehouse-envoy")])
    await client.create(POLICIES, policy("a", ENABLED))
    where = await address(client)
    await expect(client, "a", "ResolvedRefs", "False", "RefNotPermitted")
    assert (await get(where, **{"X-User": "ann"}))[0] == 200
    assert not collector.spans

    await apply(client, [grant()])
    await expect(client, "a", "ResolvedRefs", "True", "ResolvedRefs")
    await expect(client, "a", "Accepted", "True", "Accepted")

    async def is_traced() -> bool:
        assert (await get(where, **{"X-User": "ann"}))[0] == 200
        return bool(collector.spans)

    await until(is_traced)
    span = collector.spans[0]
    assert (span.name, span.resource["service.name"]) == ("every request", "front")
    expected = {"env": 'a "b" %REQ(X)% $1', "user": "ann", "method": "GET"}
    assert expected.items() <= span.attributes.items()
    assert span.attributes["gatehouse.route"] == "default/app/0"
    assert collector.headers["x-tenant"] == "shop"

    await client.patch(POLICIES, "a", {"spec": {"tracing": {"spanName": "later"}}}, "default")

    async def is_renamed() -> bool:
        assert (await get(where))[0] == 200
        return any(span.name == "later" for span in collector.spans)

    await until(is_renamed)
    await client.create(POLICIES, policy("b", {"mode": "Disabled"}))
    await expect(client, "b", "Accepted", "False", "Conflicted")

    await client.delete(POLICIES, "a", "default")
    await expect(client, "b", "Accepted", "True", "Accepted")
