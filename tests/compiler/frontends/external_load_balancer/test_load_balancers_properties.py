"""Over any history: incremental equals full compile, and an upstream has one owner."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.load_balancer_world import (
    EDGE,
    World,
    balancer,
    endpoint,
    endpoints,
    key_of,
    nlk,
    node,
    port,
    service,
)
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.http import Forward
from gatehouse.compiler.ir.load_balancing import Machines
from gatehouse.incremental import query

Object = dict[str, Any]
SOURCES = (
    EDGE,
    ("ExternalLoadBalancer", "nlk", "other"),
    ("ExternalLoadBalancer", "nlk", "machines"),
    front.NLK_CONFIG_KEY,
)
TREATMENT = st.sampled_from(["Keep", "Drain", "Remove"])

SERVICES = st.builds(
    lambda name, ports, kind, local, context, tier, created: service(
        name,
        *[port(port_name, number) for port_name, number in ports],
        type=kind,
        externalTrafficPolicy=local,
        annotations={"nginxinc.io/nlk-web": context},
        labels={"tier": tier},
        created=f"2026-01-0{created}T00:00:00Z",
    ),
    st.sampled_from(["s1", "s2", "s3"]),
    st.lists(
        st.tuples(st.sampled_from(["nlk-web", "nlk-api", "x"]), st.sampled_from([0, 30080])),
        max_size=2,
        unique_by=lambda pair: pair[0],
    ),
    st.sampled_from(["NodePort", "ClusterIP", "LoadBalancer", "ExternalName"]),
    st.sampled_from(["", "Local"]),
    st.sampled_from(["http", "stream", "wrong"]),
    st.sampled_from(["edge", "inner"]),
    st.integers(1, 2),
)
NODES = st.builds(
    lambda number, ready, cordoned, label: node(
        f"n{number}", f"10.0.0.{number}", ready=ready, cordoned=cordoned, **label
    ),
    st.integers(1, 4),
    st.sampled_from(["True", "False"]),
    st.booleans(),
    st.sampled_from([{}, {"node-role.kubernetes.io/control-plane": ""}]),
)
SLICES = st.builds(
    lambda of, number, ready: endpoints(
        of, endpoint(f"10.9.0.{number}", f"n{number}", ready=ready), ports=(("nlk-web", 8080),)
    ),
    st.sampled_from(["s1", "s2"]),
    st.integers(1, 3),
    st.booleans(),
)
BALANCERS = st.builds(
    lambda name, host, tier, policy, empty: balancer(
        name,
        hosts=[{"url": f"http://h{host}/api"}],
        services={"namespaces": ["*"], "selector": {"matchLabels": tier}},
        nodes=policy,
        whenEmpty=empty,
    ),
    st.sampled_from(["edge", "other"]),
    st.integers(1, 2),
    st.sampled_from([{}, {"tier": "edge"}]),
    st.fixed_dictionaries({"notReadyPolicy": TREATMENT, "unschedulablePolicy": TREATMENT}),
    st.sampled_from(["Keep", "Remove"]),
)
MACHINES = st.builds(
    lambda listening, empty: balancer(
        "machines",
        type="Envoy",
        hosts=[{"name": "lb-1"}],
        listeners=[
            {"port": number, "protocol": protocol, "upstream": upstream}
            for number, protocol, upstream in listening
        ],
        whenEmpty=empty,
    ),
    st.lists(
        st.tuples(
            st.integers(1, 2),
            st.sampled_from(["HTTP", "TCP", "UDP", "TLS"]),
            st.sampled_from(["web", "api"]),
        ),
        max_size=4,
    ),
    st.sampled_from(["Keep", "Remove"]),
)
CONFIGS = st.builds(
    lambda host, mode: nlk(nginx_hosts=f"http://h{host}/api", tls_mode=mode),
    st.integers(1, 2),
    st.sampled_from(["no-tls", "bad"]),
)
EDITS = st.tuples(st.one_of(SERVICES, NODES, SLICES, BALANCERS, MACHINES, CONFIGS), st.booleans())


def assert_whole(gateway: GatewayConfiguration) -> None:
    """Check that exactly the clusters that are referred to exist."""
    streams = [host for l4_listener in gateway.l4_listeners for host in l4_listener.hosts]
    named = {backend.cluster for host in streams for backend in host.backends}
    for listener in gateway.listeners:
        for host in listener.virtual_hosts:
            (route,) = host.routes
            assert isinstance(route.action, Forward)
            named |= {backend.cluster for backend in route.action.backends}
    assert [cluster.name for cluster in gateway.clusters] == sorted(named)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(EDITS, min_size=1, max_size=6), min_size=1, max_size=8))
def test_incremental_equals_full_compile_and_an_upstream_has_one_owner(
    history: list[list[tuple[Object, bool]]],
) -> None:
    world = World()
    objects: dict[query.Key, Object] = {}
    for batch in history:
        for raw, there in batch:
            if there:
                objects[key_of(raw)] = raw
                world.put(raw)
            else:
                objects.pop(key_of(raw), None)
                world.remove(raw)
        fresh = World(*objects.values())
        taken: set[tuple[str, str]] = set()
        for source in SOURCES:
            result = world.compiled(source)
            assert result == fresh.compiled(source)
            if result.balancer is None:
                continue
            if isinstance(result.balancer, Machines):
                assert_whole(result.balancer.gateway)
            for upstream in result.balancer.upstreams:
                addresses = [server.address for server in upstream.servers]
                assert len(addresses) == len(set(addresses))
                for host in result.balancer.hosts:
                    place = (host.place, str(upstream.name))
                    assert place not in taken
                    taken.add(place)
