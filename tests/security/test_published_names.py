"""Names that Gatehouse publishes through external-dns.

Who: a tenant who writes HostedAPIServers, or Gateways with their infrastructure, in one namespace.
Through what: hostnames, TTLs and several parents of HostedAPIServers, annotations of external-dns
on Gateways. What must hold: a DNSEndpoint has only names that a listener serves for the object, and
each points to the load balancers of the Gateways that serve it; no annotation of external-dns
reaches a Service unless the operator allows its domain.
"""

from __future__ import annotations

from typing import Any

import pytest

from gatehouse.apis.gateway import is_allowed_key
from gatehouse.compiler.frontends import combined, gateway_api, hosted_apiserver
from gatehouse.incremental.query import Engine, Snapshot

Object = dict[str, Any]

ADDRESSES = {"one": "192.0.2.1", "two": "192.0.2.2"}
OWNED = {"app.kubernetes.io/managed-by": "gatehouse"}


def gateway(name: str, *listeners: tuple[str, str]) -> list[tuple[str, Object]]:
    """Return a Gateway with TLS listeners (name, hostname) for all namespaces, and its Service."""
    every = {"allowedRoutes": {"namespaces": {"from": "All"}}}
    tls = {"port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}}
    specs = [{"name": key, **tls, **every, "hostname": host} for key, host in listeners]
    owner = {"kind": "Gateway", "name": name, "controller": True}
    address = {"loadBalancer": {"ingress": [{"ip": ADDRESSES[name]}]}}
    return [
        ("Gateway", obj(name, "edge", spec={"gatewayClassName": "c", "listeners": specs})),
        ("Service", obj(name, "edge", labels=OWNED, ownerReferences=[owner], status=address)),
    ]


def obj(name: str, namespace: str, spec: Any = None, status: Any = None, **metadata: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec or {},
        "status": status or {},
    }


def published(*parents: Object, hosts: tuple[str, ...], listeners: Any) -> dict[str, list[str]]:
    """Return the targets by name in the DNSEndpoint of a tenant's HostedAPIServer."""
    spec = {
        "parentRefs": list(parents),
        "hosts": list(hosts),
        "service": {"name": "s"},
        "dns": {"publish": True},
    }
    ports = {"ports": [{"name": "h", "port": 443}]}
    objects = [
        ("GatewayClass", obj("c", "", spec={"controllerName": gateway_api.ENVOY})),
        ("Service", obj("s", "tenant", spec=ports)),
        ("HostedAPIServer", obj("a", "tenant", spec=spec)),
        *(item for name, specs in listeners.items() for item in gateway(name, *specs)),
    ]
    engine = Engine(Snapshot(combined.INDEXES))
    settings = gateway_api.ControllerSettings(bind="any")
    engine.commit({gateway_api.SETTINGS_KEY: settings})
    for kind, raw in objects:
        key = (kind, raw["metadata"]["namespace"], raw["metadata"]["name"])
        engine.commit({key: combined.decode_object(kind, raw)})
    with engine.compile() as ask:
        records = ask(hosted_apiserver.records, ("HostedAPIServer", "tenant", "a"))
    endpoint = hosted_apiserver.endpoint(("tenant", "a"), records) if records else None
    if endpoint is None:
        return {}
    return {record["dnsName"]: record["targets"] for record in endpoint["spec"]["endpoints"]}


def parent(name: str, **more: str) -> Object:
    return {"name": name, "namespace": "edge", **more}


def test_names_that_no_listener_serves_are_not_published() -> None:
    names = published(
        parent("one"),
        hosts=("a.tenant.example", "www.bank.example", "tenant.example", "b.a.tenant.example"),
        listeners={"one": [("tenants", "*.tenant.example")]},
    )
    assert names == {"a.tenant.example": ["192.0.2.1"], "b.a.tenant.example": ["192.0.2.1"]}


def test_name_of_a_more_specific_listener_is_not_published_for_another() -> None:
    names = published(
        parent("one", sectionName="tenants"),
        hosts=("a.example", "bank.example"),
        listeners={"one": [("tenants", "*.example"), ("bank", "bank.example")]},
    )
    assert names == {"a.example": ["192.0.2.1"]}


def test_each_name_points_to_the_gateways_that_serve_it() -> None:
    names = published(
        parent("one"),
        parent("two"),
        hosts=("a.one.example", "a.two.example", "a.both.example"),
        listeners={
            "one": [("own", "*.one.example"), ("both", "*.both.example")],
            "two": [("own", "*.two.example"), ("both", "*.both.example")],
        },
    )
    assert names == {
        "a.one.example": ["192.0.2.1"],
        "a.two.example": ["192.0.2.2"],
        "a.both.example": ["192.0.2.1", "192.0.2.2"],
    }


@pytest.mark.parametrize(
    "name", ["hostname", "internal-hostname", "target", "ttl", "alias", "controller", "access"]
)
def test_annotations_of_external_dns_need_permission_of_the_operator(name: str) -> None:
    key = f"external-dns.alpha.kubernetes.io/{name}"
    assert not is_allowed_key(key, ("metallb.io", "dns.alpha.kubernetes.io"))
    assert is_allowed_key(key, ("external-dns.alpha.kubernetes.io",))
