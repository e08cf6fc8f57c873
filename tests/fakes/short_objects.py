"""Objects of a tenant in short form: routes, policies, filters and what belongs to them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]

GROUP = "gateway.networking.k8s.io"
GATEWAY = {"name": "gw", "namespace": "infra"}
BACKEND: Object = {"name": "s", "port": 80}
AUTHORITY = {"group": "", "kind": "ConfigMap", "name": "r"}
"""Reference to CA certificates."""
KEYS = base64.b64encode(
    b'{"keys": [{"kty": "oct", "alg": "HS256", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}]}'
).decode()
"""Keys of tokens."""


def route(rule: Object | None = None, *, kind: str = "HTTPRoute", **spec: Any) -> list[Object]:
    """Return a route with one rule."""
    rules = [{"backendRefs": [BACKEND]} | (rule or {})]
    return [{"kind": kind, "spec": {"rules": rules, **spec}}]


def path(value: str, kind: str = "RegularExpression") -> list[Object]:
    return route({"matches": [{"path": {"type": kind, "value": value}}]})


def header(name: str, value: str, kind: str = "Exact") -> list[Object]:
    return route({"matches": [{"headers": [{"name": name, "value": value, "type": kind}]}]})


def query(name: str, value: str, kind: str = "Exact") -> list[Object]:
    return route({"matches": [{"queryParams": [{"name": name, "value": value, "type": kind}]}]})


def modified(change: str, *items: Any, direction: str = "request") -> list[Object]:
    return route({"filters": [modifier(direction, change, items)]})


def modifier(direction: str, change: str, items: Any) -> Object:
    name = f"{direction}HeaderModifier"
    return {"type": name[0].upper() + name[1:], name: {change: [*items]}}


def named(name: str, value: str = "v") -> Object:
    return {"name": name, "value": value}


def filtered(kind: str, value: Object) -> list[Object]:
    rule: Object = {"filters": [{"type": kind, _field(kind): value}]}
    return route(rule if kind != "RequestRedirect" else rule | {"backendRefs": []})


def full_path(value: str) -> Object:
    """Return a redirect or rewrite to a path."""
    return {"path": {"type": "ReplaceFullPath", "replaceFullPath": value}}


def prefix_path(value: str) -> Object:
    """Return a redirect or rewrite of the matched prefix."""
    return {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": value}}


def _field(kind: str) -> str:
    known = {"CORS": "cors", "URLRewrite": "urlRewrite"}
    return known.get(kind, kind[0].lower() + kind[1:])


def session(name: str, kind: str = "Header", lifetime: str = "", **spec: Any) -> list[Object]:
    """Return a route with a session. ``lifetime``: the ``lifetimeType`` of its cookie."""
    own = {"name": name, **({"lifetimeType": lifetime} if lifetime else {})}
    return route({"sessionPersistence": {"type": kind, kind.lower(): own, **spec}})


def policy(kind: str, spec: Object, *, of: str = "HTTPRoute") -> list[Object]:
    """Return a policy of a route, or of its Service."""
    target = (
        {"group": "", "kind": "Service", "name": "s"}
        if of == "Service"
        else {"group": GROUP, "kind": of, "name": "r"}
    )
    version = {"ObservabilityPolicy": "v1alpha2", "ProxySettingsPolicy": "v1alpha1"}
    single = kind == "ClientSettingsPolicy"
    spec = {"targetRef": target, **spec} if single else {"targetRefs": [target], **spec}
    groups = {
        "XBackendTrafficPolicy": "gateway.networking.x-k8s.io",
        "TrafficPolicy": "gatehouse.dev",
        "SecurityPolicy": "gatehouse.dev",
    }
    group = groups.get(kind, "gateway.nginx.org")
    api = f"{group}/{version.get(kind, 'v1alpha1')}"
    return [*route(), {"apiVersion": api, "kind": kind, "spec": spec}]


def limit(**rule: Any) -> list[Object]:
    rules = [{"key": "$binary_remote_addr", "rate": "10r/s", **rule}]
    return policy("RateLimitPolicy", {"rateLimit": {"local": {"rules": rules}}})


def client(**spec: Any) -> list[Object]:
    return policy("ClientSettingsPolicy", spec)


def proxy(**spec: Any) -> list[Object]:
    return policy("ProxySettingsPolicy", spec)


def upstream(**spec: Any) -> list[Object]:
    return policy("UpstreamSettingsPolicy", spec, of="Service")


def traffic(**spec: Any) -> list[Object]:
    return policy("XBackendTrafficPolicy", spec, of="Service")


def portable(**spec: Any) -> list[Object]:
    """Return a TrafficPolicy of a Service, if it is about a backend, or of a route."""
    return policy("TrafficPolicy", spec, of="Service" if "backend" in spec else "HTTPRoute")


def secured(**spec: Any) -> list[Object]:
    """Return a SecurityPolicy of a route, and a Secret with users."""
    users: Object = {"kind": "Secret", "data": {"auth": "dTp7UExBSU59cA=="}}
    return [*policy("SecurityPolicy", spec), users]


def portable_rate(**rule: Any) -> list[Object]:
    rules = [{"requests": 10, "per": "Second", **rule}]
    return portable(rateLimit={"local": {"rules": rules}})


def hashed(kind: str, name: str) -> list[Object]:
    key = {"type": kind, "name": name}
    return portable(backend={"loadBalancing": {"method": "Hash", "hashKey": key}})


def cookie(**fields: str) -> Object:
    """Return the session persistence of a policy."""
    return {"type": "Cookie", "cookie": fields}


def traced(**tracing: Any) -> list[Object]:
    return policy("ObservabilityPolicy", {"tracing": tracing})


def authenticated(spec: Object, secret: Object | None = None) -> list[Object]:
    reference = {"group": "gateway.nginx.org", "kind": "AuthenticationFilter", "name": "r"}
    result = route({"filters": [{"type": "ExtensionRef", "extensionRef": reference}]})
    result.append(
        {"apiVersion": "gateway.nginx.org/v1alpha1", "kind": "AuthenticationFilter", "spec": spec}
    )
    return [*result, *([secret] if secret else [])]


def basic(realm: str, users: str = "dXNlcjokYXByMSR4JDE=") -> list[Object]:
    spec = {"type": "Basic", "basic": {"realm": realm, "secretRef": {"name": "r"}}}
    secret = {"kind": "Secret", "type": "nginx.org/htpasswd", "data": {"auth": users}}
    return authenticated(spec, secret)


def jwt(keys: str = KEYS, **spec: Any) -> list[Object]:
    spec = {"realm": "a", "source": "File", "file": {"secretRef": {"name": "r"}}, **spec}
    secret = {"kind": "Secret", "data": {"auth": keys}}
    return authenticated({"type": "JWT", "jwt": spec}, secret)


def claims(*listed: Object) -> Object:
    return {"require": "All", "rules": [{"require": "All", "claims": [*listed]}]}


def backend_tls(**validation: Any) -> list[Object]:
    spec = {
        "targetRefs": [{"group": "", "kind": "Service", "name": "s"}],
        "validation": {"wellKnownCACertificates": "System", "hostname": "a.example", **validation},
    }
    return [*route(), {"kind": "BackendTLSPolicy", "spec": spec}]


def x_backend(**spec: Any) -> list[Object]:
    """Return a route to an XBackend with an endpoint."""
    group, uid = "gateway.networking.x-k8s.io", "uid-of-x"
    selector = {"type": "EndpointSelector", "endpointSelector": {"matchLabels": {"a": "b"}}}
    service = f"xbackend-{hashlib.sha256(uid.encode()).hexdigest()[:20]}"
    return [
        *route({"backendRefs": [{"group": group, "kind": "XBackend", "name": "x"}]}),
        {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "XBackend",
            "name": "x",
            "metadata": {"uid": uid},
            "spec": {**selector, "port": {"number": 9000}, **spec},
        },
        {
            "kind": "EndpointSlice",
            "name": f"{service}-1",
            "addressType": "IPv4",
            "ports": [{"port": 9000}],
            "endpoints": [{"addresses": ["10.0.0.1"]}],
        },
    ]


def pool_of_models(**spec: Any) -> list[Object]:
    """Return a route to an InferencePool with an endpoint."""
    group, uid = "inference.networking.k8s.io", "uid-of-pool"
    service = f"inferencepool-{hashlib.sha256(uid.encode()).hexdigest()[:20]}"
    return [
        *route({"backendRefs": [{"group": group, "kind": "InferencePool", "name": "pool"}]}),
        {
            "apiVersion": f"{group}/v1",
            "kind": "InferencePool",
            "name": "pool",
            "metadata": {"uid": uid},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "targetPorts": [{"number": 9000}],
                **spec,
            },
        },
        {
            "kind": "EndpointSlice",
            "name": f"{service}-1",
            "addressType": "IPv4",
            "ports": [{"name": f"port-{number}", "port": number} for number in (1, 9000, 65_535)],
            "endpoints": [{"addresses": ["10.0.0.1"]}],
        },
    ]


def cors(**spec: Any) -> list[Object]:
    return filtered("CORS", {"allowOrigins": ["https://a.example"], **spec})


def l4(kind: str, port: int, **backend: Any) -> list[Object]:
    return [
        {
            "kind": kind,
            "spec": {
                "rules": [{"backendRefs": [BACKEND | backend]}],
                "parentRefs": [GATEWAY | {"sectionName": kind[:3].lower()}],
            },
        }
    ]


def tls(*hostnames: str) -> list[Object]:
    return route(kind="TLSRoute", hostnames=[*hostnames])


def listener(**spec: Any) -> list[Object]:
    entry = {"name": "l", "port": 8081, "protocol": "HTTP", **spec}
    return [{"kind": "ListenerSet", "spec": {"parentRef": GATEWAY, "listeners": [entry]}}]


def grpc(match: Object) -> list[Object]:
    return route({"matches": [match]}, kind="GRPCRoute")


def external(name: str) -> list[Object]:
    return [
        *route(),
        {
            "kind": "Service",
            "name": "s",
            "spec": {"type": "ExternalName", "externalName": name, "ports": [{"port": 80}]},
        },
    ]


def slice_of(kind: str, *addresses: str, **endpoint: Any) -> list[Object]:
    return [
        *route(),
        {
            "kind": "EndpointSlice",
            "name": "s-2",
            "addressType": kind,
            "ports": [{"port": 80}],
            "endpoints": [{"addresses": [a], **endpoint} for a in addresses],
        },
    ]


def services(namespace: str) -> Iterator[Object]:
    for name in ("s", "t"):
        yield completed(
            {"kind": "Service", "name": name, "spec": {"ports": [{"port": 80}]}}, namespace
        )
        yield completed(
            {
                "kind": "EndpointSlice",
                "name": f"{name}-1",
                "addressType": "IPv4",
                "ports": [{"port": 9000}],
                "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}],
            },
            namespace,
        )


def completed(raw: Object, namespace: str) -> Object:
    kind = raw["kind"]
    own = {"name": raw.pop("name", "r"), "namespace": namespace}
    raw["metadata"] = own | raw.pop("metadata", {})
    if kind == "EndpointSlice":
        raw["apiVersion"] = "discovery.k8s.io/v1"
        service = raw["metadata"]["name"].rpartition("-")[0]
        raw["metadata"]["labels"] = {"kubernetes.io/service-name": service}
    elif kind in ("Service", "Secret", "ConfigMap"):
        raw["apiVersion"] = "v1"
    raw.setdefault(
        "apiVersion", f"{GROUP}/{'v1alpha2' if kind in ('TCPRoute', 'UDPRoute') else 'v1'}"
    )
    if kind in ("HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"):
        raw["spec"].setdefault("parentRefs", [GATEWAY])
    if kind in ("HTTPRoute", "GRPCRoute", "TLSRoute"):
        raw["spec"].setdefault("hostnames", [f"{namespace}.example"])
    return raw
