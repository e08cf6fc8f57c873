"""XBackends (GEP-4894): their problems and their protocol.

An XBackend of type EndpointSelector selects Pods of its own namespace
(:mod:`~gatehouse.compiler.frontends.gateway_api.routes.pod_selections`). An XBackend of type
ExternalHostname is a host outside the cluster, with the rules of
:mod:`~gatehouse.compiler.frontends.gateway_api.routes.external_names`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gatehouse.apis import backends
from gatehouse.compiler.frontends.gateway_api.cluster_key import X_BACKEND, Protocol
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import unavailable_kind_key
from gatehouse.compiler.frontends.gateway_api.routes import backend_sessions
from gatehouse.compiler.frontends.gateway_api.routes.external_names import name_finding
from gatehouse.incremental.query import Ask, Key

_HTTP: Mapping[str, Protocol] = {
    "": "http", "HTTP": "http", "HTTP11": "http", "WSS": "http", "HTTP2": "h2c", "H2C": "h2c",
}  # fmt: skip
_CALLS: Mapping[str, Protocol] = dict.fromkeys(("", "GRPC", "HTTP", "HTTP2", "H2C"), "grpc")
_CONNECTIONS: Mapping[str, Protocol] = dict.fromkeys(("", "TCP"), "tcp")

_PROTOCOLS: Mapping[str, Mapping[str, Protocol]] = {
    "HTTPRoute": _HTTP,
    "GRPCRoute": _CALLS,
    "TLSRoute": _CONNECTIONS,
    "TCPRoute": _CONNECTIONS,
}
"""Protocol by kind of route and ``spec.protocol``; others are not supported."""

_WITH_TLS, _WITHOUT_TLS = ("HTTP2", "WSS"), ("H2C",)


def x_backend_problem(ask: Ask, gateway: Key, key: Key) -> Finding | None:
    """Return why a Gateway forwards nothing to an XBackend, whatever the route is; None if it may.

    The definition of the kind rejects most of it, but another version of it may be installed.
    """
    backend = ask.read(key)
    name = f"XBackend {key[1]}/{key[2]}"
    if backend is None:
        why = ask.read(unavailable_kind_key(X_BACKEND))
        suffix = f": kind {X_BACKEND} is not available: {why}" if why else ""
        return Finding(Reason.BACKEND_NOT_FOUND, f"{name} not found{suffix}")
    if not isinstance(backend, backends.XBackend):
        return Finding(Reason.UNSUPPORTED_BACKEND, f"{name} is invalid")
    for problem in problems_of_spec(backend.spec):
        return Finding(Reason.UNSUPPORTED_BACKEND, f"{name}: spec.{problem}")
    return name_finding(ask, gateway, key)


def problems_of_spec(spec: backends.BackendSpec) -> Iterable[str]:
    """Yield what is invalid or not supported in an XBackend."""
    if spec.type not in (backends.EXTERNAL_HOSTNAME, backends.ENDPOINT_SELECTOR):
        yield f"type: {spec.type!r} is not supported"
    if spec.type == backends.ENDPOINT_SELECTOR and not spec.endpoint_selector.match_labels:
        yield "endpointSelector.matchLabels: must not be empty"
    if not 0 < spec.port.number < 65536:
        yield "port.number: must be set to a port"
    if not any(spec.protocol in known for known in _PROTOCOLS.values()):
        yield f"protocol: {spec.protocol} is not supported"
    mode = spec.tls.mode
    if mode == backends.NO_TLS and spec.protocol in _WITH_TLS:
        yield f"tls.mode: must not be None with protocol {spec.protocol}"
    if mode != backends.NO_TLS and spec.protocol in _WITHOUT_TLS:
        yield f"tls.mode: must be None with protocol {spec.protocol}"
    if mode not in (backends.NO_TLS, backends.SERVER_ONLY, backends.CLIENT_AND_SERVER):
        yield f"tls.mode: {mode!r} is not supported"
    if (mode == backends.CLIENT_AND_SERVER) != (spec.tls.client_certificate_ref is not None):
        yield "tls.clientCertificateRef: must be set if and only if mode is ClientAndServer"
    if (mode != backends.NO_TLS) != (spec.tls.validation is not None):
        yield "tls.validation: must be set if and only if mode is not None"
    yield from backend_sessions.problems_of_sessions(spec)


def protocol_of(backend: backends.XBackend, route: str) -> Protocol | None:
    """Return the protocol between a data plane and an XBackend; None if a route of a kind cannot
    use it."""
    return _PROTOCOLS.get(route, {}).get(backend.spec.protocol)
