"""Translation of ExternalAuth filters (GEP-1494): an authorization server checks each request."""

from __future__ import annotations

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api.compiled_filters import Filters
from gatehouse.compiler.frontends.gateway_api.external_auth_values import (
    ALWAYS_SENT,
    external_auth_problems,
)
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import GatewayObject
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import (
    resolve_backend,
    tls_resolved,
)
from gatehouse.compiler.ir.authentication import ExternalAuth
from gatehouse.compiler.ir.http import Route
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask


def translate_external_auth(
    ask: Ask, at: GatewayObject, spec: routes.ExternalAuthSpec, where: str
) -> Filters:
    """Translate the filter of a route at a Gateway; ``where`` is its field path in the route."""
    messages = [*external_auth_problems(ask, at[0], spec, where)]
    if messages:
        return Filters(
            findings=tuple(Finding(Reason.UNSUPPORTED_VALUE, message) for message in messages)
        )
    place = f"{where}.backendRef"
    is_grpc = spec.protocol == "GRPC"
    server = resolve_backend(ask, at, spec.backend_ref, place, "grpc" if is_grpc else None)
    if isinstance(server, Finding):
        return Filters(findings=(server,))
    if not ask(tls_resolved, at[0], server):
        service = f"{server.namespace}/{server.service}"
        message = f"{place}: the BackendTLSPolicy of Service {service} is invalid"
        return Filters(findings=(Finding(Reason.INVALID_FILTER, message),))
    kind, namespace, name = at[1]
    own = spec.grpc if is_grpc else spec.http
    translated = ExternalAuth(
        cluster=server.name,
        protocol="grpc" if is_grpc else "http",
        path="" if is_grpc else _prefix(spec.http.path),
        request_headers=_unique(own.allowed_headers, () if is_grpc else ALWAYS_SENT),
        response_headers=() if is_grpc else _unique(spec.http.allowed_response_headers),
        body_size=spec.forward_body.max_size,
        origin=Origin(kind, namespace, name, where),
    )
    return Filters(Route(external_auth=translated), clusters=(server,))


def _prefix(path: str) -> str:
    """Return a path as a prefix: with a slash at the start, without one at the end."""
    stripped = path.strip("/")
    return f"/{stripped}" if stripped else ""


def _unique(names: tuple[str, ...], without: frozenset[str] | tuple[()] = ()) -> tuple[str, ...]:
    """Return names without duplicates, which differ only in upper and lower case."""
    unique = {name.lower(): name for name in reversed(names) if name.lower() not in without}
    return tuple(unique[name] for name in sorted(unique))
