"""Properties of every compile pass: incremental equals full, few reruns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import every_kind
from fakes.stable_hash import cut_tables_alike, stable_hash
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import combined, gateway_api, hosted_apiserver
from gatehouse.compiler.frontends.gateway_api import dependencies
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache
from gatehouse.incremental.query import Engine, Key, Snapshot
from gatehouse.transports.agents.call_auth import CallAuthorizer
from gatehouse.transports.agents.fleet import AgentFleet
from gatehouse.transports.agents.fleet_events import FleetEvents
from gatehouse.transports.agents.session import Register
from gatehouse.transports.agents.stream import Apply
from gatehouse.transports.agents.token_auth import Identity
from gatehouse.transports.mpi.services import MpiServices

Object = dict[str, Any]
NGINX = nginx.NginxCapabilities((1, 31, 3), named_endpoints=True)
ENVOY = envoy.EnvoyCapabilities()
NAMESPACES = ("a", "b")


def meta(name: str, namespace: str = "", **more: Any) -> Object:
    created = "2026-01-01T00:00:00Z"
    return {"name": name, "namespace": namespace, "creationTimestamp": created} | more


def gateway(hostname: str | None, selector: str, port: int, scope: str) -> Object:
    listener: Object = {"name": "l", "port": port, "protocol": "HTTP"}
    listener["allowedRoutes"] = {"namespaces": {"from": selector}}
    if hostname:
        listener["hostname"] = hostname
    listeners = [
        listener,
        {"name": "m", "port": 8080, "protocol": "HTTP"},
        {"name": "tcp", "port": 9000, "protocol": "TCP"},
        {"name": "tls", "port": 9443, "protocol": "TLS", "tls": {"mode": "Passthrough"}},
        {"name": "proxies", "port": 9444, "protocol": "gatehouse.dev/ProxyProtocol"},
    ]
    allowed = {"namespaces": {"from": "Same"}}
    spec = {"gatewayClassName": "c", "listeners": listeners, "allowedListeners": allowed}
    spec["defaultScope"] = scope
    return {"spec": spec}


def route(
    hostnames: list[str],
    path: str,
    service: str,
    namespace: str,
    guarded: bool = False,
    gateways: tuple[str, ...] = ("gw",),
    scope: str = "None",
) -> Object:
    backend = {**every_kind.reference(service), "namespace": namespace}
    rule: Object = {"matches": [{"path": {"value": path}}], "backendRefs": [backend]}
    if guarded:
        reference = {"group": "gateway.nginx.org", "kind": "AuthenticationFilter", "name": "auth"}
        rule["filters"] = [{"type": "ExtensionRef", "extensionRef": reference}]
    parents = [{"name": name, "namespace": "a"} for name in gateways]
    spec: Object = {"parentRefs": parents, "hostnames": hostnames, "rules": [rule]}
    spec["useDefaultGateways"] = scope
    return {"spec": spec}


HOSTS = st.sampled_from(["x.example", "y.example", "*.example", "z.test"])
OBJECTS: dict[str, st.SearchStrategy[tuple[Key, Object | None]]] = {
    "GatewayClass": st.tuples(
        st.just(("GatewayClass", "", "c")),
        st.none()
        | st.sampled_from(gateway_api.CONTROLLERS).map(
            lambda name: {"spec": {"controllerName": name}}
        ),
    ),
    "Gateway": st.tuples(
        st.sampled_from([("Gateway", "a", "gw"), ("Gateway", "a", "other")]),
        st.none()
        | st.builds(
            gateway,
            st.none() | HOSTS,
            st.sampled_from(["All", "Same"]),
            st.sampled_from([8080, 8081]),
            st.sampled_from(["None", "All"]),
        ),
    ),
    "HTTPRoute": st.tuples(
        st.tuples(
            st.just("HTTPRoute"), st.sampled_from(NAMESPACES), st.sampled_from(["r", "s", "t"])
        ),
        st.none()
        | st.builds(
            route,
            st.lists(HOSTS, max_size=2, unique=True),
            st.sampled_from(["/", "/p", "/p/q"]),
            st.sampled_from(["s1", "s2", "b"]),
            st.sampled_from(NAMESPACES),
            st.booleans(),
            st.sampled_from([("gw",), ("gw", "other"), ("other",), ()]),
            st.sampled_from(["None", "All"]),
        ),
    ),
    "Service": st.tuples(
        st.tuples(st.just("Service"), st.sampled_from(NAMESPACES), st.sampled_from(["s1", "s2"])),
        st.none()
        | st.sampled_from(["", "web"]).map(
            lambda n: {"spec": {"ports": [{"name": n, "port": 80}]}}
        ),
    ),
    "EndpointSlice": st.tuples(
        st.tuples(
            st.just("EndpointSlice"), st.sampled_from(NAMESPACES), st.sampled_from(["s1", "s2"])
        ),
        st.none()
        | st.sampled_from([("IPv4", "10.0.0.1"), ("IPv4", "10.0.0.2"), ("FQDN", "b.example")]).map(
            lambda known: {
                "addressType": known[0],
                "ports": [{"name": "", "port": 9}],
                "endpoints": [{"addresses": [known[1]]}],
            }
        ),
    ),
    "ReferenceGrant": st.tuples(
        st.tuples(st.just("ReferenceGrant"), st.sampled_from(NAMESPACES), st.just("g")),
        st.none()
        | st.builds(
            lambda ns, to: {
                "spec": {
                    "from": [
                        {
                            "group": "gateway.networking.k8s.io",
                            "kind": "HTTPRoute",
                            "namespace": ns,
                        }
                    ],
                    "to": [to],
                }
            },
            st.sampled_from(NAMESPACES),
            st.sampled_from(
                [
                    {"group": "", "kind": "Service"},
                    {"group": every_kind.EXPERIMENTS, "kind": "XBackend"},
                ]
            ),
        ),
    ),
    "HTTPRoute malformed": st.tuples(
        st.just(("HTTPRoute", "a", "r")), st.just({"spec": {"rules": "not a list"}})
    ),
}
EDITS = st.lists(
    st.lists(st.one_of(*OBJECTS.values(), *every_kind.EDITS.values()), max_size=8),
    min_size=1,
    max_size=8,
)


def fresh() -> Engine:
    engine = Engine(Snapshot(combined.INDEXES))
    engine.commit(
        {gateway_api.SETTINGS_KEY: gateway_api.ControllerSettings(bind="any", snippets=True)}
    )
    return engine


def decoded(key: Key, body: Object | None) -> Any:
    if body is None:
        return None
    labels = {"kubernetes.io/service-name": key[2]} if key[0] == "EndpointSlice" else {}
    metadata = meta(key[2], key[1], labels=labels, **body.get("metadata", {}))
    return combined.decode_object(key[0], {**body, "metadata": metadata})


def everything(engine: Engine) -> tuple[Any, Any]:
    with engine.compile() as ask:
        gateways = [
            ask(combined.compile_combined_gateway, key) for key in ask(gateway_api.gateways)
        ]
        statuses = ask.map(combined.desired_status, ask(combined.status_subjects))
        serving = ask.map(combined.gateways_of_attached, ask(combined.status_subjects))
        records = ask.map(hosted_apiserver.records, ask.read(hosted_apiserver.HOSTED))
        written = [
            ask.map(owned.desired, ask.read(owned.owners)) for _, owned in combined.KINDS.owned
        ]
        return gateways, (statuses, serving, records, *written)


def referring(engine: Engine) -> list[tuple[Key, tuple[Key, ...], list[Key]]]:
    """Return, for each Service, the Gateways that use it: by the index, and by a full scan."""
    with engine.compile() as ask:
        gateways = ask(gateway_api.gateways)
        return [
            (
                name,
                ask(dependencies.gateways_using, name),
                [key for key in gateways if name in used[key]],
            )
            for name in (
                ("Service", namespace, f"s{n}") for namespace in NAMESPACES for n in (1, 2)
            )
            for used in ({key: ask(dependencies.services, key) for key in gateways},)
        ]


@settings(max_examples=100, deadline=None)
@given(EDITS)
def test_gateways_of_a_service_are_found_by_its_routes(
    edits: list[list[tuple[Key, Object | None]]],
) -> None:
    engine = fresh()
    for edit in edits:
        engine.commit({key: decoded(key, body) for key, body in edit})
        for service, gateways, expected in referring(engine):
            assert list(gateways) == expected, service


@settings(max_examples=150, deadline=None)
@given(EDITS)
def test_incremental_compile_equals_full_compile(
    edits: list[list[tuple[Key, Object | None]]],
) -> None:
    engine = fresh()
    generator, other = nginx.NginxGenerator(NGINX), envoy.EnvoyGenerator(ENVOY)
    for edit in edits:
        engine.commit({key: decoded(key, body) for key, body in edit})
        gateways, statuses = everything(engine)
        oracle = fresh()
        oracle.commit(engine.snapshot.objects())
        assert (gateways, statuses) == everything(oracle)
        for compiled in gateways:
            full = nginx.NginxGenerator(NGINX).generate(compiled)
            generated = generator.generate(compiled)
            assert (generated, dict(generated.file_set.files)) == (full, dict(full.file_set.files))
            whole, incremental = (
                envoy.EnvoyGenerator(ENVOY).generate(compiled),
                other.generate(compiled),
            )
            assert (incremental, incremental.resources.by_type) == (whole, whole.resources.by_type)


def test_route_change_reruns_few_queries_and_shares_the_rest() -> None:
    engine = fresh()
    changes: dict[Key, Any] = {}
    fixed: list[tuple[Key, Object]] = [
        (("GatewayClass", "", "c"), {"spec": {"controllerName": "gatehouse.dev/nginx"}}),
        (("Gateway", "a", "gw"), gateway(None, "Same", 8081, "None")),
        (("Service", "a", "s1"), {"spec": {"ports": [{"port": 80}]}}),
    ]
    fixed += [
        (("HTTPRoute", "a", f"r{n}"), route([f"h{n}.example"], "/", "s1", "a")) for n in range(1000)
    ]
    for key, body in fixed:
        changes[key] = decoded(key, body)
    engine.commit(changes)
    before = everything(engine)[0][0].listeners[0].virtual_hosts
    runs = engine.runs
    key = ("HTTPRoute", "a", "r7")
    engine.commit({key: decoded(key, route(["h7.example"], "/other", "s1", "a"))})
    after = everything(engine)[0][0].listeners[0].virtual_hosts
    assert engine.runs - runs <= 20
    changed = [new.hostname for old, new in zip(before, after, strict=True) if old is not new]
    assert changed == ["h7.example"]


def calls(work: Callable[[], object]) -> int:
    """Count function calls of a piece of work, but those of the stable hash of tables.

    Unlike the duration, the number is equal in every run.
    """
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is not stable_hash.__code__

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def to_envoys() -> Callable[[ir_gateway.GatewayConfiguration], None]:
    """Return a function that publishes a gateway for Envoys."""
    generator, published = envoy.EnvoyGenerator(ENVOY), SnapshotCache()

    def publish(compiled: ir_gateway.GatewayConfiguration) -> None:
        published.publish(generator.generate(compiled).resources)

    return publish


def to_nginx() -> Callable[[ir_gateway.GatewayConfiguration], None]:
    """Return a function that publishes a gateway for NGINX and requests it as an agent."""
    generator = nginx.NginxGenerator(NGINX)
    fleet = AgentFleet(60.0, lambda: 0.0, FleetEvents())
    services = MpiServices(fleet, CallAuthorizer(identify=None, on_trespass=None), "/etc/nginx")  # type: ignore[arg-type]

    def publish(compiled: ir_gateway.GatewayConfiguration) -> None:
        fleet.publish(compiled.name, generator.generate(compiled).file_set)
        current = fleet.desired(Identity(compiled.name, "pod"))
        assert current is not None
        apply_request = Apply(current, "c", Register("id", "nginx/1.31.3"))
        assert services.apply_request(apply_request)

    return publish


DATA_PLANES = {"gatehouse.dev/envoy": to_envoys, "gatehouse.dev/nginx": to_nginx}


MAX_NEW_ROUTE_CALLS = {"None": 3_150, "All": 3_200}
"""Maximum number of calls in a pass with one new route, however many routes exist.

By the scope of default Gateways: a route that does not name its Gateway takes some 40 more.
"""


def calls_for_new_route(existing: int, controller: str, scope: str) -> int:
    """Return the number of calls in a pass with one new route, given ``existing`` routes.

    ``scope``: ``All`` if the routes attach to the Gateway as the default, without naming it.
    """
    parents = () if scope == "All" else ("gw",)
    engine, serve = fresh(), DATA_PLANES[controller]()
    changes: dict[Key, Any] = {
        key: decoded(key, body)
        for key, body in (
            (("GatewayClass", "", "c"), {"spec": {"controllerName": controller}}),
            (("Gateway", "a", "gw"), gateway(None, "Same", 8081, scope)),
        )
    }
    for number in range(existing + 1):
        for kind, body in (
            ("Service", {"spec": {"ports": [{"port": 80}]}}),
            (
                "HTTPRoute",
                route([f"h{number}.example"], "/", f"s{number}", "a", False, parents, scope),
            ),
        ):
            key = (kind, "a", f"{'s' if kind == 'Service' else 'r'}{number}")
            changes[key] = decoded(key, body)
    last = {key: changes.pop(key) for key in list(changes)[-2:]}
    engine.commit(changes)

    def turn() -> None:
        serve(everything(engine)[0][0])

    turn()

    def more() -> None:
        engine.commit(last)
        turn()

    return calls(more)


@pytest.mark.parametrize("scope", ["None", "All"])
@pytest.mark.parametrize("controller", DATA_PLANES)
def test_cost_of_new_route_is_nearly_independent_of_existing_routes(
    controller: str, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_tables_alike(monkeypatch)
    few, many = (calls_for_new_route(existing, controller, scope) for existing in (300, 3_000))
    assert max(few, many) <= MAX_NEW_ROUTE_CALLS[scope], (few, many)
    assert many < 1.15 * few
