"""Session persistence of XBackends (GEP-1619): which rules have it, and which do not.

A session selects an endpoint, never a backend: each backend of a rule has its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gatehouse.apis import backends, resources, routes
from gatehouse.compiler.frontends.gateway_api.cluster_key import X_BACKEND, ClusterKey
from gatehouse.compiler.frontends.gateway_api.routes import retries
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Ask, Key

AnyRule = routes.RouteRule | routes.GrpcRule | routes.StreamRule


def refers_to(reference: routes.BackendRef | routes.BackendObject, namespace: str) -> Key | None:
    """Return the XBackend of a reference in a namespace; None if it names another kind."""
    resource = resources.X_BACKENDS
    if (reference.group, reference.kind) != (resource.group, resource.kind):
        return None
    return (resource.kind, reference.namespace or namespace, reference.name)


def own_persistence(ask: Ask, cluster: ClusterKey) -> ir.Persistence | None:
    """Return the sessions of an XBackend; None if it has none."""
    target = (cluster.kind, cluster.namespace, cluster.service)
    backend = ask.read(target) if cluster.kind == X_BACKEND else None
    if not isinstance(backend, backends.XBackend) or backend.spec.session_persistence is None:
        return None
    own = retries.persistence(backend.spec.session_persistence, f"{target}")
    # No proxy ends a session: a condition of the XBackend has that.
    return msgspec.structs.replace(own, absolute_timeout=0.0)


def problems_of_sessions(spec: backends.BackendSpec) -> Iterator[str]:
    """Yield what is invalid in the sessions of an XBackend."""
    session = spec.session_persistence
    if session is None:
        return
    if spec.type != backends.ENDPOINT_SELECTOR:
        yield f"sessionPersistence: must not be set with type {spec.type}"
    if session.type not in ("Cookie", "Header"):
        yield f"sessionPersistence.type: {session.type!r} is not supported"
    if session.type == "Header" and not session.name:
        yield "sessionPersistence.header.name: must be set"
    yield from (f"sessionPersistence.{why}" for why in retries.session_problems(session))


def unserved_rules(route: routes.RouteObject, backend: Key) -> Iterator[str]:
    """Yield the rules of a route without the sessions of an XBackend, each with the reason."""
    namespace = route.metadata.namespace
    rules: tuple[AnyRule, ...] = route.spec.rules
    for number, rule in enumerate(rules):
        of_filters = () if isinstance(rule, routes.StreamRule) else rule.filters
        if any(refers_to(r, namespace) == backend for r in routes.filter_references(of_filters)):
            yield f"rules[{number}].filters: copies and checks have no sessions"
        named = [refers_to(one, namespace) == backend for one in rule.backend_refs]
        if not any(named):
            continue
        if isinstance(rule, routes.StreamRule):
            yield f"rules[{number}]: connections have no sessions"
        elif rule.session_persistence is not None:
            yield f"rules[{number}]: has sessionPersistence of its own"
