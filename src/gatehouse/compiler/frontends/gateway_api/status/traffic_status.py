"""Findings about XBackendTrafficPolicies beyond those that all policies have."""

from __future__ import annotations

from collections.abc import Iterator

from gatehouse.compiler.frontends.gateway_api.attachment.hostname_conflicts import attachments
from gatehouse.compiler.frontends.gateway_api.extensions.backend_traffic_policies import (
    RETRY_FIELD,
    SESSION_FIELD,
    TRAFFIC_KIND,
)
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import routes_by_service, unsupported_key
from gatehouse.compiler.frontends.gateway_api.routes.rules import translate
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.origin import Origin, object_of
from gatehouse.incremental.query import Ask, Key

_SHARED = (
    f"spec.{SESSION_FIELD}: a rule that also leads to a Service with an older policy has the "
    "sessions of that policy"
)


def traffic_findings(ask: Ask, key: Key, gateway: Key) -> tuple[Finding, ...]:
    """Return which settings of an accepted policy the routes of a Gateway lack.

    No message names a route: the author of the policy may have no access to its namespace.
    """
    problems = dict.fromkeys(
        problem
        for target in ask.read(key).targets
        for route in sorted(ask.read(routes_by_service(key[1], target.name)))
        for problem in _problems(ask, key, gateway, route)
    )
    if not problems:
        return ()
    unsupported = "; ".join(problems)
    unlimited = any(problem.startswith(f"spec.{RETRY_FIELD}: ") for problem in problems)
    if unlimited and ask.read(key).spec.session_persistence is None:
        return (Finding(Reason.POLICY_INVALID, unsupported),)
    message = f"the policy is accepted; not supported: {unsupported}"
    return (Finding(Reason.ACCEPTED, message),)


def _problems(ask: Ask, key: Key, gateway: Key, route: Key) -> Iterator[str]:
    own = object_of(key)
    for part in unsupported_key(ask, gateway, route):
        if part.setting.whole == own:
            yield f"spec.{part.setting.part}: {part.reason}"
    if ask.read(key).spec.session_persistence is not None:
        targets = {(key[1], target.name) for target in ask.read(key).targets}
        if any(origin != own for origin in _sessions(ask, gateway, route, targets)):
            yield _SHARED


def _sessions(
    ask: Ask, gateway: Key, route: Key, services: set[tuple[str, str]]
) -> Iterator[Origin]:
    """Yield the policies whose session persistence rules with some Services have."""
    for entry in ask(attachments, route) if route[0] in ("HTTPRoute", "GRPCRoute") else ():
        if entry.gateway != gateway or not entry.listener_hostnames:
            continue
        place = entry.listener_hostnames[0]
        translated = ask(translate, gateway, route, place.port, place.protocol)
        names = {
            cluster.name
            for cluster in translated.clusters
            if (cluster.namespace, cluster.service) in services
        }
        for ranked in translated.routes:
            action = ranked.route.action
            for backend in action.backends if isinstance(action, ir.Forward) else ():
                session = backend.persistence if backend.cluster in names else None
                if session is not None and session.origin.kind == TRAFFIC_KIND:
                    yield session.origin.whole
