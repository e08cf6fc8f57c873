"""Hostname conflicts of HTTPRoutes and GRPCRoutes, checked against all pairs: the older wins."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api import hostnames
from gatehouse.incremental.query import Engine, Key, Snapshot

NAMES = ("", "a.example", "b.example", "c.b.example", "*.b.example", "*.example", "x.test")
ROUTES = st.dictionaries(
    st.tuples(
        st.sampled_from(["HTTPRoute", "GRPCRoute"]), st.just("n"), st.sampled_from("abcdefgh")
    ),
    st.none()
    | st.tuples(st.sets(st.sampled_from(NAMES), min_size=1, max_size=2), st.integers(1, 4)),
    max_size=12,
)
Wanted = tuple[set[str], int]


def decoded(key: Key, spec: dict[str, Any], day: int = 1) -> Any:
    metadata = {"name": key[2], "namespace": key[1], "creationTimestamp": f"2026-01-0{day}"}
    return gateway_api.decode_gateway_api_object(key[0], {"metadata": metadata, "spec": spec})


def engine() -> Engine:
    compiler = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
    listeners = [{"name": "l", "port": 80, "protocol": "HTTP"}]
    for key, spec in (
        (("GatewayClass", "", "c"), {"controllerName": "gatehouse.dev/envoy"}),
        (("Gateway", "n", "gw"), {"gatewayClassName": "c", "listeners": listeners}),
    ):
        compiler.commit({key: decoded(key, spec)})
    return compiler


def route(key: Key, claims: Wanted | None) -> Any:
    if claims is None:
        return None
    names = [] if "" in claims[0] else sorted(claims[0])
    return decoded(key, {"parentRefs": [{"name": "gw"}], "hostnames": names}, claims[1])


def served(ask: Any) -> set[Key]:
    attached = ask.map(gateway_api.gateways_of_route, ask.read(gateway_api.ROUTES_KEY))
    return {key for key, gateways in attached.items() if gateways}


def by_all_pairs(routes: dict[Key, Wanted]) -> set[Key]:
    claims_by_route: list[tuple[str, list[str]]] = []
    winners = set()
    for key, (names, _) in sorted(routes.items(), key=lambda e: (e[1][1], e[0][1:], e[0][0])):
        claims = [""] if "" in names else sorted(names)
        lost = any(
            kind != key[0] and hostnames.intersect(mine, theirs) is not None
            for kind, others in claims_by_route
            for theirs in others
            for mine in claims
        )
        if not lost:
            claims_by_route.append((key[0], claims))
            winners.add(key)
    return winners


@settings(deadline=None)
@given(st.lists(ROUTES, min_size=1, max_size=4))
def test_older_route_wins_a_hostname_conflict(edits: list[dict[Key, Wanted | None]]) -> None:
    compiler, routes = engine(), dict[Key, Wanted]()
    for edit in edits:
        compiler.commit({key: route(key, claims) for key, claims in edit.items()})
        routes |= {key: claims for key, claims in edit.items() if claims is not None}
        routes = {key: claims for key, claims in routes.items() if edit.get(key, 0) is not None}
        with compiler.compile() as ask:
            assert served(ask) == by_all_pairs(routes)
