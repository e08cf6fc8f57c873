"""Properties of every compile pass: incremental equals full, few reruns, values stay data."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crossplane
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import envoy_rules, envoys, every_kind
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import combined, gateway_api, hosted_apiserver
from gatehouse.compiler.frontends.gateway_api import dependencies
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Authorization, Claim, Jwt, Requirement
from gatehouse.compiler.ir.settings import Attribute, RateLimit, RateLimits, Settings
from gatehouse.dataplane.file_set import FileSet
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache
from gatehouse.incremental.query import Engine, Key, Snapshot
from gatehouse.transports.agents.call_auth import CallAuthorizer
from gatehouse.transports.agents.fleet import Fleet
from gatehouse.transports.agents.session import Register
from gatehouse.transports.agents.stream import Apply
from gatehouse.transports.agents.token_auth import Identity
from gatehouse.transports.mpi.services import Services

Object = dict[str, Any]
NGINX = nginx.Capabilities((1, 31, 3), named_endpoints=True)
ENVOY = envoy.Capabilities()
NAMESPACES = ("a", "b")


def meta(name: str, namespace: str = "", **more: Any) -> Object:
    created = "2026-01-01T00:00:00Z"
    return {"name": name, "namespace": namespace, "creationTimestamp": created} | more


def gateway(hostname: str | None, selector: str, port: int) -> Object:
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
    return {"spec": spec}


def route(
    hostnames: list[str],
    path: str,
    service: str,
    namespace: str,
    guarded: bool = False,
    gateways: tuple[str, ...] = ("gw",),
) -> Object:
    backend = {"name": service, "namespace": namespace, "port": 80}
    rule: Object = {"matches": [{"path": {"value": path}}], "backendRefs": [backend]}
    if guarded:
        reference = {"group": "gateway.nginx.org", "kind": "AuthenticationFilter", "name": "auth"}
        rule["filters"] = [{"type": "ExtensionRef", "extensionRef": reference}]
    parents = [{"name": name, "namespace": "a"} for name in gateways]
    return {"spec": {"parentRefs": parents, "hostnames": hostnames, "rules": [rule]}}


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
            st.sampled_from(["s1", "s2"]),
            st.sampled_from(NAMESPACES),
            st.booleans(),
            st.sampled_from([("gw",), ("gw", "other"), ("other",)]),
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
        | st.sampled_from(["10.0.0.1", "10.0.0.2"]).map(
            lambda ip: {"ports": [{"name": "", "port": 9}], "endpoints": [{"addresses": [ip]}]}
        ),
    ),
    "ReferenceGrant": st.tuples(
        st.tuples(st.just("ReferenceGrant"), st.sampled_from(NAMESPACES), st.just("g")),
        st.none()
        | st.sampled_from(NAMESPACES).map(
            lambda ns: {
                "spec": {
                    "from": [
                        {
                            "group": "gateway.networking.k8s.io",
                            "kind": "HTTPRoute",
                            "namespace": ns,
                        }
                    ],
                    "to": [{"group": "", "kind": "Service"}],
                }
            }
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
    engine.commit({gateway_api.SETTINGS_KEY: gateway_api.Settings(bind="any", snippets=True)})
    return engine


def decoded(key: Key, body: Object | None) -> Any:
    if body is None:
        return None
    labels = {"kubernetes.io/service-name": key[2]} if key[0] == "EndpointSlice" else {}
    metadata = meta(key[2], key[1], labels=labels, **body.get("metadata", {}))
    return combined.decode(key[0], {**body, "metadata": metadata})


def everything(engine: Engine) -> tuple[Any, Any]:
    with engine.compile() as ask:
        gateways = [ask(combined.compile_gateway, key) for key in ask(gateway_api.gateways, "")]
        said = ask.map(combined.status, ask(combined.subjects, ""))
        serving = ask.map(combined.gateways_of, ask(combined.subjects, ""))
        records = ask.map(hosted_apiserver.records, ask.read(hosted_apiserver.HOSTED))
        return gateways, (said, serving, records)


def referring(engine: Engine) -> list[tuple[tuple[str, str], tuple[Key, ...], list[Key]]]:
    """Return, for each Service, the Gateways that use it: by the index, and by a full scan."""
    with engine.compile() as ask:
        gateways = ask(gateway_api.gateways, "")
        return [
            (name, ask(dependencies.users, name), [key for key in gateways if name in used[key]])
            for name in ((namespace, f"s{n}") for namespace in NAMESPACES for n in (1, 2))
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
        for service, found, expected in referring(engine):
            assert list(found) == expected, service


@settings(max_examples=150, deadline=None)
@given(EDITS)
def test_incremental_compile_equals_full_compile(
    edits: list[list[tuple[Key, Object | None]]],
) -> None:
    engine = fresh()
    generator, other = nginx.Generator(NGINX), envoy.Generator(ENVOY)
    for edit in edits:
        engine.commit({key: decoded(key, body) for key, body in edit})
        gateways, statuses = everything(engine)
        oracle = fresh()
        oracle.commit(engine.snapshot.objects())
        assert (gateways, statuses) == everything(oracle)
        for compiled in gateways:
            full = nginx.Generator(NGINX).generate(compiled)
            generated = generator.generate(compiled)
            assert (generated, dict(generated.file_set.files)) == (full, dict(full.file_set.files))
            whole, told = envoy.Generator(ENVOY).generate(compiled), other.generate(compiled)
            assert (told, told.resources.by_type) == (whole, whole.resources.by_type)


def test_route_change_reruns_few_queries_and_shares_the_rest() -> None:
    engine = fresh()
    changes: dict[Key, Any] = {}
    fixed: list[tuple[Key, Object]] = [
        (("GatewayClass", "", "c"), {"spec": {"controllerName": "gatehouse.dev/nginx"}}),
        (("Gateway", "a", "gw"), gateway(None, "Same", 8081)),
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
    """Count function calls of a piece of work: unlike its duration, equal in every run."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def to_envoys() -> Callable[[ir_gateway.Gateway], None]:
    """Return a function that publishes a gateway for Envoys."""
    generator, published = envoy.Generator(ENVOY), SnapshotCache()

    def publish(compiled: ir_gateway.Gateway) -> None:
        published.publish(generator.generate(compiled).resources)

    return publish


def to_nginx() -> Callable[[ir_gateway.Gateway], None]:
    """Return a function that publishes a gateway for NGINX and requests it as an agent."""
    generator = nginx.Generator(NGINX)
    fleet = Fleet(60.0, lambda: 0.0, lambda _: None)
    services = Services(fleet, CallAuthorizer(identify=None, on_trespass=None), "/etc/nginx")  # type: ignore[arg-type]

    def publish(compiled: ir_gateway.Gateway) -> None:
        fleet.publish(compiled.name, generator.generate(compiled).file_set)
        current = fleet.desired(Identity(compiled.name, "pod"))
        assert current is not None
        apply_request = Apply(current, "c", Register("id", "nginx/1.31.3"))
        assert services.apply_request(apply_request)

    return publish


DATA_PLANES = {"gatehouse.dev/envoy": to_envoys, "gatehouse.dev/nginx": to_nginx}


def calls_for_new_route(existing: int, controller: str) -> int:
    """Return the number of calls in a pass with one new route, given ``existing`` routes."""
    engine, serve = fresh(), DATA_PLANES[controller]()
    changes: dict[Key, Any] = {
        key: decoded(key, body)
        for key, body in (
            (("GatewayClass", "", "c"), {"spec": {"controllerName": controller}}),
            (("Gateway", "a", "gw"), gateway(None, "Same", 8081)),
        )
    }
    for number in range(existing + 1):
        for kind, body in (
            ("Service", {"spec": {"ports": [{"port": 80}]}}),
            ("HTTPRoute", route([f"h{number}.example"], "/", f"s{number}", "a")),
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


@pytest.mark.long
@pytest.mark.parametrize("controller", DATA_PLANES)
def test_cost_of_new_route_is_nearly_independent_of_existing_routes(controller: str) -> None:
    few, many = (calls_for_new_route(existing, controller) for existing in (300, 3_000))
    # The growth is one lookup per chunk.
    assert many < 1.5 * few


HOSTILE = st.text(
    alphabet=st.sampled_from(list("ab\"'\\;{}$ \n\r\t\0#()~*%\u00e9?&=,")), min_size=1, max_size=30
) | st.sampled_from(
    ["$host", "${host}", "a;}", '"', "\\", "\n}", "x" * 10_000, "%" * 10_000, "default", "include"]
)


def served(value: str, place: str) -> ir_gateway.Gateway:
    """Return a gateway with ``value`` in one of the fields that users control."""
    edit = ir.HeaderEdit(set=(ir.HeaderValue("X-A", value if place == "header" else "v"),))
    added = ir.HeaderEdit(add=(ir.HeaderValue("X-B", value if place == "added" else "v"),))
    name = value if place == "name" else "x-match"
    matched = value if place == "match" else "v"
    cors = ir.Cors(
        (value if place == "origin" else "https://a.example",),
        (value if place == "cors" else "GET",),
        expose=(value if place == "cors" else "x",),
    )
    session = ir.Persistence("cookie", value if place == "session" else "s")
    path = ir.PathPrefix("/" + value) if place == "path" else ir.PathPrefix("/p")
    rewrite = ir.FullPath("/" + value) if place == "rewrite" else ir.PrefixPath("/new")
    forward = ir.Forward(
        (ir.Backend("c-x"),),
        ir.Rewrite(value if place == "hostname" else None, rewrite),
        mirrors=(ir.Mirror("c-x", 1, 3),),
        retry=ir.Retry(2, (500,)),
        persistence=session,
    )
    redirect = ir.Redirect(
        hostname=value if place == "redirect" else "h",
        path=ir.FullPath("/" + value if place == "location" else "/x"),
    )
    match = ir.Match(
        path,
        headers=(ir.ValueMatch(name, matched),),
        query=(ir.ValueMatch(value if place == "query" else "q", matched),),
    )
    key = (value if place == "rate" else "k", Attribute("remote_addr"))
    rates = RateLimits((RateLimit("a/p/0", key, 1, "second", 1 << 20),))
    claim = Claim(value if place == "claim" else "c", (value if place == "claimed" else "v",))
    tokens = Jwt(
        value if place == "realm" else "r", "keys", 0.0, Authorization((Requirement((claim,)),))
    )
    routes = (
        ir.Route("a/b/0/0", match, forward, edit, added, cors, Settings(rates=rates), tokens),
        ir.Route("a/b/1/0", ir.Match(ir.PathExact("/r")), redirect),
        ir.Route("a/b/2/0", ir.Match(ir.PathRegex(value if place == "regex" else "/x")), forward),
    )
    return ir_gateway.Gateway(
        "a/b",
        listeners=(ir_gateway.Listener(8080, "HTTP", (ir.VirtualHost("h.example", routes),)),),
        l4_listeners=(
            ir_gateway.L4Listener(
                9443,
                "TLS",
                (
                    ir_gateway.L4Host(
                        value if place == "sni" else "t.example", (ir_gateway.L4Backend("c-x"),)
                    ),
                ),
            ),
        ),
        clusters=(ir.Cluster("c-x", (ir.Endpoint("10.0.0.1", 80),)),),
    )


def structure(bundle: FileSet) -> list[tuple[str, int]]:
    """Return the structure for a lexer: each file's directives by name, with their block depth."""
    result: list[tuple[str, int]] = []
    for path, file in bundle.files.items():
        depth, start = 0, True
        for token, _, quoted in crossplane.lexer._lex_file_object(file.content.decode()):
            if not quoted and token in ("{", "}", ";"):
                depth += {"{": 1, "}": -1, ";": 0}[token]
                start = True
            elif start:
                result.append((f"{path.count('/')} {token}", depth))
                start = False
        assert depth == 0
    return result


ABLE = nginx.Capabilities((1, 31, 3), frozenset({"nginx-auth-jwt"}), named_endpoints=True)
PLACES = (
    "header", "added", "name", "match", "path", "rewrite", "hostname", "redirect", "location",
    "query", "regex", "origin", "cors", "session", "sni", "rate", "claim", "claimed", "realm",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=60, deadline=None)
@given(value=HOSTILE)
def test_hostile_values_never_change_the_structure(place: str, value: str) -> None:
    generator = nginx.Generator(ABLE)
    hostile = generator.generate(served(value, place))
    names = {name for name, _ in structure(hostile.file_set)}
    allowed = {name for name, _ in structure(harmless(place))} | {"2 return", "2 ~", "2 default"}
    assert {name for name in names if not name.startswith(("2 ~", '2 "~', "2 \\"))} <= allowed
    if any(ord(character) < 32 for character in value) and place != "name":
        assert hostile.unsupported


def harmless(place: str) -> FileSet:
    return nginx.Generator(ABLE).generate(served("v", place)).file_set


KEYS = ir_gateway.SecretFile(
    "keys",
    ir_gateway.SecretBytes(b'{"keys": [{"kty": "oct", "alg": "HS256", "k": "c2VjcmV0c2VjcmV0"}]}'),
)


def of_many(pairs: list[tuple[str, str]]) -> ir_gateway.Gateway:
    """Return a gateway with a hostname for each place and value."""
    hosts, streams = [], dict[str, ir_gateway.L4Host]()
    for number, (place, value) in enumerate(pairs):
        one = served(value, place)
        host = next(iter(one.listeners[0].virtual_hosts))
        hosts.append(msgspec.structs.replace(host, hostname=f"h{number}.example"))
        stream = next(iter(one.l4_listeners[0].hosts))
        streams[stream.hostname] = stream
    return msgspec.structs.replace(
        one,
        bind_address=f"127.{random.randint(20, 250)}.{random.randint(0, 255)}.1",
        listeners=(msgspec.structs.replace(one.listeners[0], virtual_hosts=tuple(hosts)),),
        l4_listeners=(
            msgspec.structs.replace(
                one.l4_listeners[0], hosts=tuple(streams[name] for name in sorted(streams))
            ),
        ),
        secrets=(KEYS,),
    )


@settings(max_examples=100, deadline=None)
@given(pairs=st.lists(st.tuples(st.sampled_from(PLACES), HOSTILE), min_size=1, max_size=20))
def test_hostile_values_keep_the_lengths_that_envoy_allows(pairs: list[tuple[str, str]]) -> None:
    generated = envoy.Generator(ENVOY).generate(of_many(pairs))
    assert envoy_rules.violations(generated.resources) == []


@pytest.mark.process
@settings(max_examples=3, deadline=None)
@given(pairs=st.lists(st.tuples(st.sampled_from(PLACES), HOSTILE), min_size=1, max_size=300))
def test_envoy_treats_hostile_values_as_values(pairs: list[tuple[str, str]]) -> None:
    async def told() -> None:
        # Whatever one hostname's routes contain, the others and the listeners must exist.
        everything = [*pairs, *((place, "v") for place in PLACES)]
        generated = envoy.Generator(ENVOY).generate(of_many(everything))
        with tempfile.TemporaryDirectory(prefix="ghp-") as directory:
            async with envoys.running(Path(directory)) as running:
                running.ads.publish(generated.resources)
                await running.ads.settled()
                assert [each[:500] for each in running.ads.refused] == []
                assert running.process.returncode is None

    asyncio.run(told())
