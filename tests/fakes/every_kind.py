"""Strategies for objects other than HTTPRoutes, few enough to refer to each other often."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import strategies as st

from gatehouse.incremental.query import Key

Object = dict[str, Any]
Edit = st.SearchStrategy[tuple[Key, Object | None]]

GROUP = "gateway.networking.k8s.io"
EXPERIMENTS = "gateway.networking.x-k8s.io"
CREATED = st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])
NAMES = st.sampled_from(["x.example", "*.example", ""])


@cache
def authority() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def some(kind: str, names: list[str], body: st.SearchStrategy[Object]) -> Edit:
    keys = st.tuples(st.just(kind), st.just("a"), st.sampled_from(names))
    return st.tuples(keys, st.none() | body)


def parents(kind: str, section: str | None) -> list[Object]:
    reference: Object = {"name": "gw" if kind == "Gateway" else "set", "kind": kind}
    return [{**reference, **({"sectionName": section} if section else {})}]


PARENTS = st.builds(
    parents, st.sampled_from(["Gateway", "ListenerSet"]), st.sampled_from([None, "s", "tcp", "tls"])
)


def reference(backend: str) -> Object:
    """Return the reference to a Service, or to the XBackend ``b``."""
    if backend == "b":
        return {"group": EXPERIMENTS, "kind": "XBackend", "name": backend}
    return {"name": backend, "port": 80}


def stream_route(parents: list[Object], service: str, weight: int, hostname: str) -> Object:
    backends = [{**reference(service), "weight": weight}, {"name": "s2", "port": 80}]
    spec: Object = {"parentRefs": parents, "rules": [{"backendRefs": backends}]}
    return {"spec": spec | ({"hostnames": [hostname]} if hostname else {})}


def grpc_route(parents: list[Object], service: str, hostname: str) -> Object:
    match = {"method": {"service": "pkg.Service", "method": "Call"}}
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "p"}
    rules = [{"matches": [match], "backendRefs": [reference(service), pool]}]
    spec: Object = {"parentRefs": parents, "rules": rules}
    return {"spec": spec | ({"hostnames": [hostname]} if hostname else {})}


def inference_pool(app: str, picker: str, port: int, mode: str, uid: str) -> Object:
    spec: Object = {"selector": {"matchLabels": {"app": app}}, "targetPorts": [{"number": 8000}]}
    if picker:
        reference = {"name": picker, "port": {"number": port}, "failureMode": mode}
        spec["endpointPickerRef"] = reference
    return {"metadata": {"uid": uid}, "spec": spec}


def service_of_pool(uid: str) -> str:
    """Return the name of the Service with the endpoints of an InferencePool."""
    return f"inferencepool-{hashlib.sha256(uid.encode()).hexdigest()[:20]}"


def pool_slice(address: str, ready: bool) -> Object:
    endpoint = {"addresses": [address], "conditions": {"ready": ready}}
    ports = [{"name": "", "port": 8000, "protocol": "TCP"}]
    return {"addressType": "IPv4", "ports": ports, "endpoints": [endpoint]}


def listener_set(protocol: str, port: int, hostname: str) -> Object:
    listener: Object = {"name": "s", "port": port, "protocol": protocol}
    if protocol in ("HTTP", "TLS") and hostname:
        listener["hostname"] = hostname
    if protocol == "TLS":
        listener["tls"] = {"mode": "Passthrough"}
    return {"spec": {"parentRef": {"name": "gw"}, "listeners": [listener]}}


def hosted(
    hosts: list[str], address: str, sources: list[str], section: str, created: str
) -> Object:
    parent = {"name": "gw", "namespace": "a", **({"sectionName": section} if section else {})}
    spec: Object = {
        "parentRefs": [parent],
        "hosts": hosts,
        "service": {"name": "s1", "port": 80},
        "allowedSources": sources,
        "dns": {"publish": not sources},
    }
    if address:
        spec["advertiseAddress"] = address
    return {"spec": spec, "metadata": {"creationTimestamp": created}}


VALIDATION: Object = {
    "hostname": "b.example",
    "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}],
}
PODS: Object = {
    "type": "EndpointSelector",
    "endpointSelector": {"matchLabels": {"app": "shop"}},
}


def policy(service: str, hostname: str) -> Object:
    validation = {**VALIDATION, "hostname": hostname}
    target = {"group": "", "kind": "Service", "name": service}
    return {"spec": {"targetRefs": [target], "validation": validation}}


def x_backend(spec: Object, uid: str) -> Object:
    return {"metadata": {"uid": uid}, "spec": {"port": {"number": 80}, **spec}}


def traffic_policy(about: tuple[str, str], spec: Object, created: str) -> Object:
    target = {"group": GROUP, "kind": about[0], "name": about[1]}
    return {
        "metadata": {"creationTimestamp": created},
        "spec": {"targetRef": target, "targetRefs": [target], **spec},
    }


def about(*specs: Object) -> st.SearchStrategy[Object]:
    targets = st.sampled_from(
        [("Gateway", "gw"), ("HTTPRoute", "r"), ("HTTPRoute", "s"), ("GRPCRoute", "g")]
    )
    return st.builds(traffic_policy, targets, st.sampled_from(specs), CREATED)


def upstream_policy(service: str, spec: Object, created: str = "2026-01-01T00:00:00Z") -> Object:
    target = {"group": "", "kind": "Service", "name": service}
    return {"metadata": {"creationTimestamp": created}, "spec": {"targetRefs": [target], **spec}}


SERVICES = st.sampled_from(["s1", "s2"])
BACKENDS = SERVICES | st.just("b")
STREAMS = st.builds(stream_route, PARENTS, BACKENDS, st.integers(0, 2), NAMES)

EDITS: dict[str, Edit] = {
    "ListenerSet": some(
        "ListenerSet",
        ["set", "sets"],
        st.builds(
            listener_set,
            st.sampled_from(["HTTP", "TCP", "UDP", "TLS"]),
            st.sampled_from([8080, 8081, 9000]),
            NAMES,
        ),
    ),
    "GRPCRoute": some(
        "GRPCRoute", ["g", "h"], st.builds(grpc_route, PARENTS, BACKENDS, NAMES)
    ),
    "TLSRoute": some("TLSRoute", ["t", "u"], STREAMS),
    "TCPRoute": some("TCPRoute", ["t", "u"], STREAMS),
    "UDPRoute": some("UDPRoute", ["t", "u"], STREAMS),
    "BackendTLSPolicy": some(
        "BackendTLSPolicy",
        ["p", "q"],
        st.builds(policy, SERVICES, st.sampled_from(["b.example", "c.example"])),
    ),
    "HostedAPIServer": st.tuples(
        st.tuples(
            st.just("HostedAPIServer"), st.sampled_from(["a", "b"]), st.sampled_from(["h", "i"])
        ),
        st.none()
        | st.builds(
            hosted,
            st.lists(st.sampled_from(["x.example", "y.example", "*.example"]), max_size=2),
            st.sampled_from(["", "10.1.2.3", "fd00::5", "nowhere"]),
            st.sampled_from([[], ["10.0.0.0/8"], ["10.0.0.0/8", "192.0.2.1"]]),
            st.sampled_from(["", "tls", "proxies", "tcp"]),
            CREATED,
        ),
    ),
    "ClientSettingsPolicy": some(
        "ClientSettingsPolicy",
        ["p", "q", "r"],
        about({"body": {"maxSize": "1m"}}, {"body": {"timeout": "1s"}}, {"body": {"maxSize": "?"}}),
    ),
    "ProxySettingsPolicy": some(
        "ProxySettingsPolicy",
        ["p", "q"],
        about({"timeout": {"read": "1s"}}, {"buffering": {"bufferSize": "64k"}}),
    ),
    "RateLimitPolicy": some(
        "RateLimitPolicy",
        ["p", "q"],
        about(
            {"rateLimit": {"local": {"rules": [{"key": "$remote_addr", "rate": "1r/s"}]}}},
            {"rateLimit": {"rejectCode": 429}},
        ),
    ),
    "UpstreamSettingsPolicy": some(
        "UpstreamSettingsPolicy",
        ["p", "q"],
        st.builds(
            upstream_policy,
            SERVICES,
            st.sampled_from([{"loadBalancingMethod": "least_conn"}, {"useClusterIP": True}]),
        ),
    ),
    "TrafficPolicy": some(
        "TrafficPolicy",
        ["p", "q", "r"],
        about(
            {"client": {"maxBodySize": "1Mi"}, "timeouts": {"read": "1s"}},
            {"client": {"maxBodySize": "?"}},
            {"compression": {"mode": "Enabled"}, "retries": {"attempts": 1}},
            {"rateLimit": {"local": {"rules": [{"requests": 1, "per": "Second"}]}}},
        )
        | st.builds(
            upstream_policy,
            SERVICES,
            st.sampled_from(
                [
                    {"backend": {"loadBalancing": {"method": "LeastConnections"}}},
                    {"backend": {"keepAlive": {"maxIdleConnections": 8}}},
                    {"backend": {"circuitBreaker": {"maxConnectionsPerEndpoint": 8}}},
                ]
            ),
            CREATED,
        ),
    ),
    "SecurityPolicy": some(
        "SecurityPolicy",
        ["p", "q", "r"],
        about(
            {"basicAuth": {"secretRef": {"name": "users"}}},
            {"basicAuth": {"secretRef": {"name": "gone"}, "realm": "r"}},
            {"jwt": {"secretRef": {"name": "users"}}},
            {
                "apiKeys": {
                    "secretRefs": [{"name": "users"}],
                    "extractFrom": [{"headers": ["X-Key"]}],
                    "clientHeader": "X-User",
                }
            },
            {
                "oidc": {
                    "issuer": "https://id.example",
                    "clientID": "web",
                    "clientSecretRef": {"name": "users"},
                    "requiredClaims": [{"name": "sub", "header": "X-User"}],
                }
            },
            {"clientAddresses": {"deny": ["10.0.0.0/8"]}},
            {"securityHeaders": {"frameOptions": "Deny", "contentTypeOptions": "NoSniff"}},
            {
                "externalAuth": {
                    "protocol": "HTTP",
                    "backendRef": {"name": "s", "port": 80},
                    "http": {"allowedResponseHeaders": ["X-User"]},
                }
            },
        ),
    ),
    "SnippetsPolicy": some(
        "SnippetsPolicy",
        ["p"],
        about({"snippets": [{"context": "http.server", "value": "set $x 1;"}]}),
    ),
    "XBackendTrafficPolicy": some(
        "XBackendTrafficPolicy",
        ["p", "q", "r"],
        st.builds(
            upstream_policy,
            SERVICES,
            st.sampled_from(
                [
                    {"sessionPersistence": {"cookie": {"name": "c"}}},
                    {"sessionPersistence": {"type": "Header", "header": {"name": "X-Session"}}},
                    {"sessionPersistence": {"cookie": {"path": "no path"}}},
                    {"sessionPersistence": {"cookie": {}, "absoluteTimeout": "1h"}},
                    {"retryConstraint": {}},
                    {"retryConstraint": {"budget": {"percent": 101}}},
                    {"retryConstraint": {}, "sessionPersistence": {"cookie": {}}},
                ]
            ),
            CREATED,
        ),
    ),
    "XBackend": some(
        "XBackend",
        ["b"],
        st.builds(
            x_backend,
            st.sampled_from(
                [
                    PODS,
                    {**PODS, "protocol": "H2C"},
                    {**PODS, "sessionPersistence": {"cookie": {"name": "s"}}},
                    {**PODS, "tls": {"mode": "ServerOnly", "validation": VALIDATION}},
                    {**PODS, "endpointSelector": {}},
                    {"type": "ExternalHostname", "externalHostname": {"hostname": "b.example"}},
                ]
            ),
            st.sampled_from(["u", "v"]),
        ),
    ),
    "XTelemetryPolicy": some(
        "XTelemetryPolicy",
        ["p", "q", "r"],
        about(
            {"tracing": {"mode": "Disabled"}},
            {"tracing": {"mode": "ImplementationDefault"}},
            *(
                {"tracing": {"mode": "Enabled", "provider": {"backendRef": reference}, **more}}
                for reference in ({"name": "s1", "port": 80}, {"name": "none", "port": 80})
                for more in ({}, {"samplingRate": {"numerator": 5}}, {"spanName": "$"})
            ),
        ),
    ),
    "InferencePool": some(
        "InferencePool",
        ["p"],
        st.builds(
            inference_pool,
            st.sampled_from(["one", "two"]),
            st.sampled_from(["", "s1", "s2"]),
            st.sampled_from([80, 81]),
            st.sampled_from(["FailOpen", "FailClose"]),
            st.sampled_from(["u", "v"]),
        ),
    ),
    "EndpointSlice of an InferencePool": some(
        "EndpointSlice",
        [service_of_pool("u"), service_of_pool("v")],
        st.builds(pool_slice, st.sampled_from(["10.0.0.3", "10.0.0.4"]), st.booleans()),
    ),
    "AuthenticationFilter": some(
        "AuthenticationFilter",
        ["auth"],
        st.sampled_from(["users", "gone"]).map(
            lambda name: {
                "spec": {"type": "Basic", "basic": {"realm": "r", "secretRef": {"name": name}}}
            }
        ),
    ),
    "Secret": some("Secret", ["users"], st.sampled_from(["YTpi", "YQ=="]).map(
        lambda data: {"data": {"auth": data, "client-secret": "c2VjcmV0"}}
    )),
    "ConfigMap": some(
        "ConfigMap", ["ca"], st.sampled_from(["", "nonsense"]).map(
            lambda text: {"data": {"ca.crt": text or authority()}}
        ),
    ),
}  # fmt: skip
