"""Traces of an installation whose NGINX has ngx_otel_module, from objects to a collector."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from fakes import collectors
from fakes.installation import Installation, address, apply, get, hello, holds
from fakes.installation_fixtures import backends, client, running_installation
from fakes.otel_module import installed_nginx
from fakes.patience import until
from gatehouse.kube import client as kube

__all__ = ["backends", "client"]

pytestmark = [pytest.mark.process, pytest.mark.trace_module]

NGF = "gateway.nginx.org"


@pytest.fixture
def installation() -> Iterator[Installation]:
    with running_installation("--nginx", str(installed_nginx())) as result:
        yield result


@pytest.fixture
async def collector(installation: Installation) -> AsyncIterator[collectors.InProcessCollector]:
    async with collectors.collecting() as running:
        yield running


def objects(port: int) -> list[dict[str, Any]]:
    """Return an operator's collector, a Gateway, and the policy of its route's author."""
    proxy = {
        "apiVersion": f"{NGF}/v1alpha2", "kind": "NginxProxy",
        "metadata": {"name": "traces", "namespace": "default"},
        "spec": {"telemetry": {
            "exporter": {"endpoint": f"127.0.0.1:{port}", "interval": "200ms"},
            "spanAttributes": [{"key": "site", "value": "north"}],
        }},
    }  # fmt: skip
    parameters = {"group": NGF, "kind": "NginxProxy", "name": "traces", "namespace": "default"}
    gateway_class = {
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "traced"},
        "spec": {"controllerName": "gatehouse.dev/nginx", "parametersRef": parameters},
    }  # fmt: skip
    policy = {
        "apiVersion": f"{NGF}/v1alpha2", "kind": "ObservabilityPolicy",
        "metadata": {"name": "traces", "namespace": "default"},
        "spec": {
            "targetRefs": [
                {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "app"}
            ],
            "tracing": {"strategy": "ratio", "ratio": 100, "context": "propagate",
                        "spanAttributes": [{"key": "team", "value": "shop"}]},
        },
    }  # fmt: skip
    return [proxy, gateway_class, *hello("traced"), policy]


async def test_requests_have_spans_as_policy_and_parameters_say(
    installation: Installation,
    client: kube.Client,
    backends: None,
    collector: collectors.InProcessCollector,
) -> None:
    await apply(client, objects(collector.port))
    await holds(client, "HTTPRoute", "app", "Accepted")
    served = await address(client)

    async def received() -> bool:
        # The first requests may come before the policy is served.
        assert (await get(served))[0] == 200
        return bool(collector.spans)

    await until(received)
    span = collector.spans[0]
    assert (span.name, span.kind) == ("default/app/0", "server")
    assert span.resource["service.name"] == "gatehouse:default:web"
    expected = {"site": "north", "team": "shop", "gatehouse.gateway": "default/web"}
    assert expected.items() <= span.attributes.items()
    for kind, name in (("HTTPRoute", "app"), ("Gateway", "web")):
        accepted = await holds(client, kind, name, "Accepted")
        assert "ngx_otel_module" not in accepted["message"]
