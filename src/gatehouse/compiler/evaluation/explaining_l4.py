"""Explanations of connections without HTTP processing: TLS by SNI, TCP and UDP. No I/O."""

from __future__ import annotations

import msgspec

from gatehouse.apis import routes
from gatehouse.compiler.evaluation.backend_facts import (
    applied_tls_policies,
    empty_clusters,
    explain_backends,
)
from gatehouse.compiler.evaluation.explaining import (
    explained_listener,
    explanation_base,
    unattached_routes,
    unserved_gateway,
)
from gatehouse.compiler.evaluation.explanation import (
    ExpectedResponse,
    ExplainedBackend,
    ExplainedEndpoint,
    Explanation,
)
from gatehouse.compiler.evaluation.l4_matching import L4Connection, L4Decision, decide_l4
from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import ordered_listeners
from gatehouse.compiler.ir.gateway import GatewayConfiguration, L4Host
from gatehouse.incremental.query import Ask, Key


def explain_l4(ask: Ask, key: Key, connection: L4Connection, assume_endpoints: bool) -> Explanation:
    """Return the explanation of what one Gateway does with a connection.

    ``assume_endpoints``: as of :func:`~gatehouse.compiler.evaluation.explaining.explain_http`.
    """
    compiled = ask(combined.compile_combined_gateway, key)
    sni = f" with SNI {connection.sni}" if connection.sni else ""
    base = explanation_base(ask, key, f"{connection.protocol} connection to port "
                            f"{connection.port}{sni}")  # fmt: skip
    if compiled is None:
        return unserved_gateway(ask, key, base)
    decision = decide_l4(compiled, connection)
    states = {
        state.spec.hostname: state
        for state in ask(ordered_listeners, key)
        if (state.spec.port, state.spec.protocol) == (connection.port, connection.protocol)
    }
    base = msgspec.structs.replace(
        base,
        listener=explained_listener(next(iter(states.values()))) if states else None,
        hostname=decision.host.hostname if decision.host else None,
        unattached=unattached_routes(
            ask, key, connection.sni, connection.port, (f"{connection.protocol}Route",)
        ),
    )
    backends: tuple[ExplainedBackend, ...] = ()
    if decision.host is not None and decision.host.origin.name:
        origin = decision.host.origin
        owner = (origin.kind, origin.namespace, origin.name)
        empty = empty_clusters(ask, compiled, assume_endpoints=assume_endpoints)
        references = _references(ask, owner)
        backends = explain_backends(ask, (key, owner), references, "rules[0]", empty)
        backends = backends or _backends_of_host(decision.host, compiled, empty)
        tls = applied_tls_policies(ask, (key, owner), references)
        base = msgspec.structs.replace(base, match=str(origin), backends=backends, applied=tls)
    return msgspec.structs.replace(base, answer=_response(decision, connection, base))


def _backends_of_host(
    host: L4Host, compiled: GatewayConfiguration, empty: frozenset[str]
) -> tuple[ExplainedBackend, ...]:
    """Return the backends of an object that is no route, such as a HostedAPIServer."""
    clusters = {cluster.name: cluster for cluster in compiled.clusters}
    result = []
    for backend in host.backends:
        cluster = clusters[backend.cluster]
        endpoints = tuple(
            ExplainedEndpoint(f"{entry.address}:{entry.port}", ready=True)
            for entry in cluster.endpoints
        )
        problem = f"{cluster.origin.whole} has no ready endpoints" if cluster.name in empty else ""
        name = str(cluster.origin.whole)
        share = ExplainedBackend(name, backend.weight, 100.0, endpoints, problem=problem)
        result.append(share)
    return tuple(result)


def _references(ask: Ask, route: Key) -> tuple[routes.BackendRef, ...]:
    result = ask.read(route)
    if (
        isinstance(result, routes.TLSRoute | routes.TCPRoute | routes.UDPRoute)
        and result.spec.rules
    ):
        return result.spec.rules[0].backend_refs
    return ()


def _response(
    decision: L4Decision, connection: L4Connection, base: Explanation
) -> ExpectedResponse:
    problem = _problem(decision, connection, base)
    if problem:
        return ExpectedResponse("no-answer", f"no answer: {problem}")
    answering = [entry for entry in base.backends if entry.weight and not entry.problem]
    names = " or ".join(entry.backend for entry in answering) or base.match
    broken = [entry.problem for entry in base.backends if entry.weight and entry.problem]
    if broken:
        cause = f"no answer for some connections: {'; '.join(broken)}"
        return ExpectedResponse("mixed", cause)
    return ExpectedResponse("forwarded", f"forwarded to {names}")


def _problem(decision: L4Decision, connection: L4Connection, base: Explanation) -> str:
    """Return why no backend gets a connection; empty if one may."""
    protocol, port = connection.protocol, connection.port
    if decision.outcome == "no-port":
        if base.listener is not None and base.listener.problems:
            return base.listener.problems[0]
        return f"no listener on port {port} has the protocol {protocol}"
    if decision.outcome == "no-hostname":
        sni = connection.sni or "a handshake without SNI"
        reasons = [f"; {item.route}: {item.reason}" for item in base.unattached[:1]]
        return f"no hostname matches {sni}{''.join(reasons)}"
    if decision.outcome == "client-rejected":
        return f"client {connection.client} is not in the permitted ranges of {base.match}"
    weighted = [entry for entry in base.backends if entry.weight]
    if base.backends and all(entry.problem for entry in weighted):
        return "; ".join(entry.problem for entry in weighted) or "all weights are 0"
    if decision.outcome == "no-backend":
        if base.unattached:
            return f"{base.unattached[0].route} is not served: {base.unattached[0].reason}"
        if connection.sni:
            return f"no object on port {port} has a hostname for {connection.sni}"
        return f"no route is attached to the {protocol} listener on port {port}"
    return ""
