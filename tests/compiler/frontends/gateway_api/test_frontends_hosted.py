"""HostedAPIServers: validation, conflicts, trusted proxies, DNS records."""

from __future__ import annotations

from typing import Any

import pytest

from gatehouse.compiler.frontends import combined, gateway_api, hosted_apiserver
from gatehouse.compiler.frontends.hosted_apiserver.dns import DnsRecord, dns_records_for
from gatehouse.compiler.frontends.hosted_apiserver.inputs import parse_spec
from gatehouse.incremental.query import Engine, Key, Snapshot

Object = dict[str, Any]
OLD, YOUNG = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def server(**spec: Any) -> Object:
    return {
        "metadata": {"name": "s", "namespace": "ns"},
        "spec": {"hosts": ["api.test"], "service": {"name": "s"}} | spec,
    }


def advertised(address: str, port: int = 443) -> Object:
    return {"advertiseAddress": address, "advertisePort": port}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"hosts": []}, "spec.hosts"),
        ({"hosts": ["api.test", "*.test"]}, "spec.hosts[1]"),
        ({"hosts": ["api"]}, "spec.hosts[0]"),
        ({"hosts": ["api."]}, "spec.hosts[0]"),
        ({"hosts": ["a_b.test"]}, "spec.hosts[0]"),
        ({"hosts": ["api..test"]}, "spec.hosts[0]"),
        ({"hosts": ["api.test/x"]}, "spec.hosts[0]"),
        ({"hosts": ["api%25.test"]}, "spec.hosts[0]"),
        ({"hosts": ["10.0.0.1"]}, "spec.hosts[0]"),
        ({"hosts": [f"{'a' * 64}.test"]}, "spec.hosts[0]"),
        ({"hosts": [".".join(["a" * 60] * 5)]}, "spec.hosts[0]"),
        (advertised("api.test"), "spec.advertiseAddress"),
        (advertised("10.0.0.0/8"), "spec.advertiseAddress"),
        (advertised("0.0.0.0"), "spec.advertiseAddress"),
        (advertised("ff02::1"), "spec.advertiseAddress"),
        (advertised("fe80::1%eth0"), "spec.advertiseAddress"),
        (advertised("::ffff:10.1.2.3"), "spec.advertiseAddress"),
        (advertised("10.1.2.3", 0), "spec.advertisePort"),
        (advertised("10.1.2.3", 65536), "spec.advertisePort"),
        ({"allowedSources": ["10.0.0.0/8", "10.0.0.0/33"]}, "spec.allowedSources[1]"),
        ({"allowedSources": ["everybody"]}, "spec.allowedSources[0]"),
        ({"service": None}, "service"),
        ({"hosts": "api.test"}, "hosts"),
    ],
)
def test_invalid_value_is_reported_with_its_field(spec: Object, field: str) -> None:
    parsed = parse_spec(combined.decode_object("HostedAPIServer", server(**spec)))
    assert field in parsed.problem
    assert (parsed.hosts, parsed.address, parsed.sources) == ((), "", ())


def test_values_are_normalized() -> None:
    spec = {
        "hosts": ["API.One.Test.", "api.one.test", "b.test"],
        "allowedSources": ["10.1.2.3/8", "192.0.2.1", "10.0.0.0/8", "2001:DB8::1/32"],
        **advertised("FD00:0:0::0005"),
    }
    parsed = parse_spec(combined.decode_object("HostedAPIServer", server(**spec)))
    assert parsed.problem == ""
    assert parsed.hosts == ("api.one.test", "b.test")
    assert parsed.address == "fd00::5"
    assert parsed.sources == ("10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32")


class World:
    """A Gateway with a listener of each kind, and HostedAPIServers."""

    def __init__(self, **annotations: str) -> None:
        self.engine = Engine(Snapshot(combined.INDEXES))
        self.engine.commit({gateway_api.SETTINGS_KEY: gateway_api.ControllerSettings(bind="any")})
        self.put("GatewayClass", "", "c", {"spec": {"controllerName": gateway_api.ENVOY}})
        tls = {"name": "tls", "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}}
        inside = {"name": "in", "port": 8443, "protocol": "gatehouse.dev/ProxyProtocol"}
        every = {"allowedRoutes": {"namespaces": {"from": "All"}}}
        spec = {"gatewayClassName": "c", "listeners": [tls | every, inside | every]}
        self.put("Gateway", "ns", "gw", {"spec": spec}, annotations=annotations)

    def put(self, kind: str, namespace: str, name: str, body: Object | None, **more: Any) -> None:
        key: Key = (kind, namespace, name)
        if body is None:
            self.engine.commit({key: None})
            return
        metadata = {"name": name, "namespace": namespace, "creationTimestamp": OLD} | more
        self.engine.commit({key: combined.decode_object(kind, {"metadata": metadata, **body})})

    def service(self, name: str, namespace: str = "ns") -> None:
        self.put("Service", namespace, name, {"spec": {"ports": [{"name": "h", "port": 443}]}})

    def server(
        self, name: str, *hosts: str, namespace: str = "ns", created: str = OLD, **spec: Any
    ) -> None:
        parents = [{"name": "gw", "namespace": "ns"}]
        known = {"parentRefs": parents, "hosts": list(hosts), "service": {"name": name}} | spec
        self.put("HostedAPIServer", namespace, name, {"spec": known}, creationTimestamp=created)

    def said(self, name: str, kind: str = "Accepted", namespace: str = "ns") -> tuple[str, ...]:
        with self.engine.compile() as ask:
            status: Any = ask.map(combined.desired_status, ask(combined.status_subjects))[
                ("HostedAPIServer", namespace, name)
            ]
        status_condition = next(
            condition for condition in status.conditions if condition.type == kind
        )
        return status_condition.status, status_condition.reason, status_condition.message

    def gateway(self) -> Any:
        with self.engine.compile() as ask:
            return combined.compile_combined_gateway(ask, ("Gateway", "ns", "gw"))

    def names(self) -> list[str]:
        return [host.hostname for host in self.gateway().l4_listeners[0].hosts if host.hostname]


@pytest.mark.parametrize(
    ("old", "young", "what"),
    [
        ({"hosts": ["a.test", "b.test"]}, {"hosts": ["c.test", "B.test."]}, "b.test"),
        (advertised("fd00::5"), advertised("FD00::0005", 6443), "fd00::5"),
        ({"service": {"name": "x"}}, {"service": {"name": "x", "port": 443}}, "x:443"),
    ],
    ids=["host", "address", "service"],
)
def test_older_object_wins_a_conflict_and_the_other_names_it(
    old: Object, young: Object, what: str
) -> None:
    world = World()
    first: Any = {"hosts": ["z.test"]} | old
    second: Any = {"hosts": ["y.test"]} | young
    world.server("z", **first)
    world.server("a", created=YOUNG, **second)
    assert world.said("z")[:2] == ("True", "Accepted")
    status, reason, message = world.said("a", kind="Conflicted")
    assert (status, reason) == ("True", "HostConflict")
    assert f"{what} already used by HostedAPIServer ns/z" in message
    served = {"y.test", "c.test"} & {*world.names()}
    assert len(served) == (what != "x:443")
    assert world.said("a")[:2] == (("True", "Accepted") if served else ("False", "Conflicted"))
    world.put("HostedAPIServer", "ns", "z", None)
    assert world.said("a")[:2] == ("True", "Accepted")


def test_first_by_name_wins_a_conflict_of_the_same_age() -> None:
    world = World()
    world.server("b", "api.test", service={"name": "b"})
    world.server("a", "api.test", service={"name": "a"}, namespace="other")
    assert world.said("b")[0] == "True"
    assert world.said("a", namespace="other")[1] == "Conflicted"


def test_services_with_one_name_in_two_namespaces_do_not_conflict() -> None:
    world = World()
    world.server("a", "a.test", namespace="n1")
    world.server("a", "b.test", namespace="n2")
    assert world.said("a", namespace="n1")[0] == world.said("a", namespace="n2")[0] == "True"
    assert world.names() == ["a.test", "b.test"]


def test_invalid_trusted_proxies_annotation_disables_the_port() -> None:
    for text in ("10.0.0.0/8,nonsense", "", "10.0.0.0/8,"):
        world = World(**{"gatehouse.dev/trusted-proxies": text})
        world.server("a", "a.test", **advertised("10.1.2.3"))
        assert world.gateway().proxy_protocol_listeners == ()
        with world.engine.compile() as ask:
            status: Any = ask.map(combined.desired_status, ask(combined.status_subjects))[
                ("Gateway", "ns", "gw")
            ]
        inside = next(listener for listener in status.listeners if listener.name == "in")
        accepted = next(
            condition for condition in inside.conditions if condition.type == "Accepted"
        )
        assert accepted.status == "False"
        assert "gatehouse.dev/trusted-proxies" in accepted.message


def test_trusted_proxies_are_sorted() -> None:
    world = World(**{"gatehouse.dev/trusted-proxies": " fd00::/8 , 10.0.0.1"})
    world.service("a")
    world.server("a", "a.test", **advertised("10.1.2.3"))
    (tunnel,) = world.gateway().proxy_protocol_listeners
    assert tunnel.proxies == ("10.0.0.1/32", "fd00::/8")
    (destination,) = tunnel.destinations
    assert (destination.address, destination.port) == ("10.1.2.3", 443)


def test_hosted_apiserver_wins_a_hostname_over_a_tlsroute() -> None:
    world = World()
    world.service("a")
    world.service("b")
    rules = [{"backendRefs": [{"name": "b", "port": 443}]}]
    spec = {"parentRefs": [{"name": "gw"}], "hostnames": ["a.test"], "rules": rules}
    world.put("TLSRoute", "ns", "r", {"spec": spec})
    world.server("a", "a.test", allowedSources=["10.0.0.0/8"])
    (host,) = [l4_host for l4_host in world.gateway().l4_listeners[0].hosts if l4_host.hostname]
    assert host.sources == ("10.0.0.0/8",)
    assert host.backends[0].cluster.startswith("h-ns-a-443-")


def test_backend_tls_policy_does_not_apply_to_passthrough() -> None:
    world = World()
    world.service("a")
    validation = {"hostname": "x.test", "wellKnownCACertificates": "System"}
    target = {"group": "", "kind": "Service", "name": "a"}
    world.put(
        "BackendTLSPolicy", "ns", "p", {"spec": {"targetRefs": [target], "validation": validation}}
    )
    world.server("a", "a.test")
    (cluster,) = world.gateway().clusters
    assert (cluster.protocol, cluster.tls) == ("tcp", None)


def test_missing_service_is_a_hostname_without_backends() -> None:
    world = World()
    world.server("a", "a.test", allowedSources=["10.0.0.0/8"])
    assert world.said("a", "ResolvedRefs")[:2] == ("False", "BackendNotFound")
    (host,) = [
        candidate for candidate in world.gateway().l4_listeners[0].hosts if candidate.hostname
    ]
    assert (host.backends, host.sources) == ((), ("10.0.0.0/8",))


def test_queries_per_added_server_do_not_grow_with_their_number() -> None:
    """A compile pass after one added server runs as many queries among 2,000 as among 50."""
    runs = []
    for number in (50, 2000):
        world = World()
        for index in range(number):
            world.service(f"s{index}")
            world.server(
                f"s{index}",
                f"s{index}.test",
                **advertised(f"10.0.{index // 250}.{index % 250 + 1}"),
            )
        with world.engine.compile() as ask:
            combined.compile_combined_gateway(ask, ("Gateway", "ns", "gw"))
            ask.map(combined.desired_status, ask(combined.status_subjects))
        before = world.engine.runs
        world.service("new")
        world.server("new", "new.test", **advertised("10.9.9.9"))
        with world.engine.compile() as ask:
            compiled: Any = combined.compile_combined_gateway(ask, ("Gateway", "ns", "gw"))
            ask.map(combined.desired_status, ask(combined.status_subjects))
        assert len(compiled.l4_listeners[0].hosts) == number + 2
        runs.append(world.engine.runs - before)
    assert runs[1] < 2 * runs[0]


@pytest.mark.parametrize(
    ("targets", "records"),
    [
        (["192.0.2.1"], [("A", ("192.0.2.1",))]),
        (["192.0.2.1", "fd00::1"], [("A", ("192.0.2.1",)), ("AAAA", ("fd00::1",))]),
        (["192.0.2.1", "192.0.2.2"], [("A", ("192.0.2.1", "192.0.2.2"))]),
        (["lb.example"], [("CNAME", ("lb.example",))]),
        (["lb.example", "192.0.2.1"], [("A", ("192.0.2.1",))]),
        ([], []),
    ],
)
def test_dns_records_point_to_the_load_balancer(targets: list[str], records: list[Any]) -> None:
    records_of_hosts = dns_records_for(["b.test", "a.test"], targets, 60)
    assert records_of_hosts == [
        DnsRecord(name, kind, targets_of_kind, 60)
        for name in ("a.test", "b.test")
        for kind, targets_of_kind in records
    ]


def test_zone_has_only_names_below_its_origin() -> None:
    records = [
        *dns_records_for(
            ["api.one.example", "example", "api.other.test", "notexample"], ["192.0.2.1"], 60
        ),
        *dns_records_for(["two.example"], ["lb.cloud.test"], 30),
    ]
    assert hosted_apiserver.zone_file("Example.", records) == (
        "$ORIGIN example.\n"
        "api.one 60 IN A 192.0.2.1\n"
        "@ 60 IN A 192.0.2.1\n"
        "two 30 IN CNAME lb.cloud.test.\n"
    )


def test_service_with_names_only_as_endpoints_is_a_hostname_without_backends() -> None:
    """Of addressType: "No semantics are defined for the "FQDN" type" (discovery.k8s.io/v1)."""
    world = World()
    world.service("a")
    world.server("a", "a.test")
    names = {"addressType": "FQDN", "endpoints": [{"addresses": ["api.example"]}]}
    world.put("EndpointSlice", "ns", "a-1", names, labels={"kubernetes.io/service-name": "a"})
    assert world.said("a", "ResolvedRefs")[:2] == ("False", "UnsupportedAddressType")
    (host,) = (entry for entry in world.gateway().l4_listeners[0].hosts if entry.hostname)
    assert host.backends == ()
