"""TLS passthrough by SNI: results do not depend on history, and sources are enforced."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.compiler.backends import envoy
from gatehouse.compiler.frontends.gateway_api import hostnames
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import Destination, L4Backend, L4Host, ProxyProtocolListener
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL

NAMES = ("", "*.a.b", "*.b", "x.a.b", "y.a.b", "x.b", "z.other")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "fd00::5")
CLUSTERS = ("one", "two")
SOURCES = st.sampled_from([(), (), ("10.0.0.0/8",), ("192.0.2.1/32",)])

HOSTS = st.dictionaries(
    st.sampled_from(NAMES),
    st.tuples(st.lists(st.sampled_from((*CLUSTERS, "")), max_size=2, unique=True), SOURCES),
)
DESTINATIONS = st.dictionaries(
    st.sampled_from(ADDRESSES), st.tuples(st.sampled_from(CLUSTERS), SOURCES)
)
ENDPOINTS = st.lists(st.sampled_from([1, 2, 3]), unique=True).map(sorted)
WORLD = st.tuples(
    HOSTS,
    DESTINATIONS,
    st.fixed_dictionaries(dict.fromkeys(CLUSTERS, ENDPOINTS)),
    st.sampled_from([None, "", "*.b", "z.web"]),
    st.sampled_from([(), ("10.0.0.0/8",)]),
)


def gateway(
    hosts: dict[str, tuple[list[str], tuple[str, ...]]],
    destinations: dict[str, tuple[str, tuple[str, ...]]],
    endpoints: dict[str, list[int]],
    web: str | None,
    proxies: tuple[str, ...],
) -> ir_gateway.GatewayConfiguration:
    stream = tuple(
        L4Host(name, tuple(map(L4Backend, backends)), sources=sources)
        for name, (backends, sources) in sorted(hosts.items())
        if name != web
    )
    secure = ir.VirtualHost(web or "", (), ("web",), web or "")
    return ir_gateway.GatewayConfiguration(
        "ns/gw",
        listeners=() if web is None else (ir_gateway.Listener(443, "HTTPS", (secure,)),),
        l4_listeners=(ir_gateway.L4Listener(443, "TLS", stream),) if stream else (),
        proxy_protocol_listeners=(
            ProxyProtocolListener(
                8443,
                tuple(
                    Destination(address, 443, cluster, sources)
                    for address, (cluster, sources) in sorted(destinations.items())
                ),
                proxies,
            ),
        ),
        clusters=tuple(
            ir.Cluster(name, tuple(ir.Endpoint("10.1.0.1", port) for port in ports), "tcp")
            for name, ports in sorted(endpoints.items())
        ),
        certificates=(ir_gateway.Certificate("web", b"c", ir_gateway.SecretBytes(b"k")),),
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(WORLD, min_size=1, max_size=6))
def test_result_is_independent_of_history(worlds: list[tuple]) -> None:  # type: ignore[type-arg]
    generator = envoy.EnvoyGenerator(envoy.EnvoyCapabilities())
    for world in worlds:
        expected = gateway(*world)
        generated, whole = (
            generator.generate(expected),
            envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(expected),
        )
        assert generated == whole
        assert not generated.resources.differing(whole.resources)


@settings(max_examples=300, deadline=None)
@given(WORLD)
def test_hostname_has_cluster_only_without_sources(world: tuple) -> None:  # type: ignore[type-arg]
    """Connections selected by SNI only are not checked for sources and match no chain."""
    expected = gateway(*world)
    clusters = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(expected).resources.by_type
    named = set(clusters.get(CLUSTER_TYPE_URL, {}))
    hosts = {
        host.hostname: host for l4_listener in expected.l4_listeners for host in l4_listener.hosts
    }
    for name in (
        cluster.removeprefix("sni/443/") for cluster in named if cluster.startswith("sni/")
    ):
        host = hosts[name]
        assert host.sources == ()
        assert len(host.backends) == 1
        wide = [
            l4_host for l4_host in hosts.values()
            if l4_host.hostname != name and hostnames.hostname_covers(l4_host.hostname, name)
            and (l4_host.sources or any(share.cluster for share in l4_host.backends))
        ]  # fmt: skip
        assert not [
            l4_host for l4_host in wide if l4_host.hostname.startswith("*") or not l4_host.hostname
        ]
    listed = {
        destination.address
        for destination in expected.proxy_protocol_listeners[0].destinations
        if destination.sources
    }
    hosts_by_address = {
        address: f"[{address}]" if ":" in address else address for address in listed
    }
    assert not named & {f"dst/8443/{hosts_by_address[address]}:443" for address in listed}
