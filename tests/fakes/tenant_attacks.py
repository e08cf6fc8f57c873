"""Objects of a tenant that a proxy rejects, beside good objects on a Gateway that tenants share.

All routes have the same hostname.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes.installation import BACKEND
from fakes.rejected_objects import refused_authority
from fakes.strict_nginx import (
    KILLED,
    REFUSED,
    REFUSED_PAIR,
    REFUSED_UNNAMED,
)

Object = dict[str, Any]

HOST = "shared.example"
PROXIES = ("nginx", "envoy")
"""Names of the proxies, and of a Gateway with each."""
GOOD, TENANT = "good", "tenant"
"""Namespaces of the tenant with good objects only, and of the one with rejected objects."""
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
