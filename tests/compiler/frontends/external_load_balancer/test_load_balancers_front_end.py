"""Front end of external load balancers: claims, servers, conflicts, hosts, ``nlk-config``."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.load_balancer_world import (
    EDGE,
    World,
    balancer,
    endpoint,
    endpoints,
    nlk,
    node,
    port,
    secret,
    service,
)
from gatehouse.compiler.frontends import external_load_balancer as front

NODES = (node("a", "10.0.0.1"), node("b", "10.0.0.2"))


def test_port_prefix_selects_the_upstream_name() -> None:
    ports = (port("nlk-web", 30080), port("metrics", 30081), port("nlk-api", 30082))
    world = World(balancer(), *NODES, service("ingress", *ports))
    assert world.upstreams() == {
        "http/api": ["10.0.0.1:30082", "10.0.0.2:30082"],
        "http/web": ["10.0.0.1:30080", "10.0.0.2:30080"],
    }


@pytest.mark.parametrize(
    ("annotations", "upstream"),
    [
        ({}, "http/web"),
        ({"nginxinc.io/nlk-web": "http"}, "http/web"),
        ({"nginxinc.io/nlk-web": "stream"}, "stream/web"),
        ({"nginxinc.io/nlk-other": "stream"}, "http/web"),
        ({"gatehouse.dev/upstream.nlk-web": "cluster1-web"}, "http/cluster1-web"),
    ],
)
def test_annotations_set_context_and_name(annotations: dict[str, str], upstream: str) -> None:
    world = World(balancer(), *NODES, service(annotations=annotations))
    assert list(world.upstreams()) == [upstream]


@pytest.mark.parametrize(
    ("changed", "annotations", "words"),
    [
        (port("nlk-"), {}, "'' must be a valid upstream name"),
        (port(), {"nginxinc.io/nlk-web": "tcp"}, "'tcp' must be http or stream"),
        (port(protocol="UDP"), {}, "annotation nginxinc.io/nlk-web must be stream for UDP"),
        (
            port(protocol="SCTP"),
            {"nginxinc.io/nlk-web": "stream"},
            "protocol SCTP is not supported",
        ),
        (port(), {"gatehouse.dev/upstream.nlk-web": "a/b"}, "'a/b' must be a valid upstream name"),
    ],
)
def test_invalid_port_is_reported_and_its_upstream_stays_unchanged(
    changed: Any, annotations: dict[str, str], words: str
) -> None:
    world = World(balancer(), *NODES, service("ingress", changed, annotations=annotations))
    world.own("http/web", "stream/old")
    assert (world.upstreams(), world.released()) == ({}, [])
    (messages,) = world.finding_messages()["InvalidPort"]
    assert "Service nginx-ingress/ingress: port 'nlk-" in messages
    assert words in messages
    world.own("http/web", of="another")
    assert world.released() == ["http/web"]


@pytest.mark.parametrize(
    ("services", "followed"),
    [
        ({}, []),
        ({"namespaces": ["nginx-ingress"]}, ["http/one", "http/two"]),
        ({"namespaces": ["nlk", "nginx-ingress"]}, ["http/one", "http/two"]),
        ({"namespaces": ["*"], "selector": {"matchLabels": {"tier": "edge"}}}, ["http/one"]),
        ({"namespaces": ["*"], "annotation": {"name": "follow"}}, ["http/one", "http/two"]),
        ({"namespaces": ["*"], "annotation": {"name": "follow", "value": "yes"}}, ["http/two"]),
        ({"namespaces": ["*"], "portPrefix": "nlk-o"}, ["http/ne"]),
    ],
)
def test_services_are_selected_by_namespace_labels_annotation_and_prefix(
    services: Any, followed: list[str]
) -> None:
    one = service("one", port("nlk-one"), labels={"tier": "edge"}, annotations={"follow": "no"})
    two = service("two", port("nlk-two", 30081), annotations={"follow": "yes"})
    world = World(balancer(services=services), *NODES, one, two)
    assert list(world.upstreams()) == followed


POOL = {"matchLabels": {"pool": "edge"}}
CONTROL_PLANE: dict[str, Any] = {"node-role.kubernetes.io/control-plane": ""}
MASTER: dict[str, Any] = {"node-role.kubernetes.io/master": ""}
EXCLUDED: dict[str, Any] = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}


@pytest.mark.parametrize(
    ("odd", "policy", "there"),
    [
        (node("x", "10.0.0.9"), {}, "10.0.0.9:30080"),
        (node("x", "10.0.0.9", **CONTROL_PLANE), {}, ""),
        (node("x", "10.0.0.9", **MASTER), {}, ""),
        (node("x", "10.0.0.9", **CONTROL_PLANE), {"controlPlane": True}, "10.0.0.9:30080"),
        (
            node("x", "10.0.0.9", **CONTROL_PLANE, **EXCLUDED),
            {"controlPlane": True},
            "10.0.0.9:30080",
        ),
        (node("x", "10.0.0.9", **EXCLUDED), {}, ""),
        (
            node("x", "10.0.0.9", pool="edge"),
            {"selector": POOL},
            "10.0.0.9:30080",
        ),
        (node("x", "10.0.0.9"), {"selector": POOL}, ""),
        (node("x", "10.0.0.9", ready="False"), {}, ""),
        (node("x", "10.0.0.9", ready="Unknown"), {}, ""),
        (node("x", "10.0.0.9", ready=None), {}, "10.0.0.9:30080"),
        (node("x", "10.0.0.9", ready="False"), {"notReadyPolicy": "Keep"}, "10.0.0.9:30080"),
        (node("x", "10.0.0.9", ready="False"), {"notReadyPolicy": "Drain"}, "10.0.0.9:30080-"),
        (node("x", "10.0.0.9", cordoned=True), {}, "10.0.0.9:30080"),
        (node("x", "10.0.0.9", cordoned=True), {"unschedulablePolicy": "Drain"}, "10.0.0.9:30080-"),
        (node("x", "10.0.0.9", cordoned=True), {"unschedulablePolicy": "Remove"}, ""),
        (
            node("x", "10.0.0.9", cordoned=True, ready="False"),
            {"unschedulablePolicy": "Keep", "notReadyPolicy": "Drain"},
            "10.0.0.9:30080-",
        ),
        (node("x"), {}, ""),
        (node("x", "fd00::9"), {}, "[fd00::9]:30080"),
    ],
)
def test_nodes_are_servers_by_role_labels_readiness_and_cordon(
    odd: Any, policy: Any, there: str
) -> None:
    plain = node("a", "10.0.0.1", pool="other" if "selector" not in policy else "edge")
    world = World(balancer(nodes=policy), plain, odd, service())
    servers = world.upstreams()["http/web"]
    assert servers == ["10.0.0.1:30080"] + ([there] if there else [])


def test_all_addresses_of_a_node_are_servers_in_the_families_of_the_service() -> None:
    both = node("a", "10.0.0.1", "fd00::1")
    world = World(balancer(), both, service())
    assert world.upstreams() == {"http/web": ["10.0.0.1:30080", "[fd00::1]:30080"]}
    world.put(service(ipFamilies=["IPv6"]))
    assert world.upstreams() == {"http/web": ["[fd00::1]:30080"]}


def test_nodes_with_the_same_address_are_one_server() -> None:
    policy = {"unschedulablePolicy": "Drain"}
    old, new = node("a", "10.0.0.1", cordoned=True), node("b", "10.0.0.1")
    for nodes in ((old, new), (new, node("c", "10.0.0.1", cordoned=True))):
        world = World(balancer(nodes=policy), *nodes, service())
        assert world.upstreams() == {"http/web": ["10.0.0.1:30080"]}
    world = World(balancer(nodes=policy), old, service())
    assert world.upstreams() == {"http/web": ["10.0.0.1:30080-"]}


def test_all_nodes_are_servers_when_none_is_ready() -> None:
    away = [node("a", "10.0.0.1", ready="Unknown"), node("b", "10.0.0.2", ready="Unknown")]
    world = World(balancer(), *away, service())
    assert world.upstreams() == {"http/web": ["10.0.0.1:30080", "10.0.0.2:30080"]}


@pytest.mark.parametrize(
    ("of_service", "of_balancer"),
    [({"externalTrafficPolicy": "Local"}, {}), ({}, {"nodes": {"onlyWithEndpoints": True}})],
)
def test_nodes_without_an_endpoint_are_omitted_with_local_traffic_policy(
    of_service: Any, of_balancer: Any
) -> None:
    endpoint_slice = endpoints(
        "ingress", endpoint("10.9.0.1", "b", ready=True), endpoint("10.9.0.2", "a", ready=False)
    )
    world = World(balancer(**of_balancer), *NODES, service(**of_service), endpoint_slice)
    assert world.upstreams() == {"http/web": ["10.0.0.2:30080"]}


def test_endpoints_are_the_servers_of_a_cluster_ip_service() -> None:
    first = endpoints(
        "ingress",
        endpoint("10.9.0.2", ready=True),
        endpoint("10.9.0.1"),
        endpoint("10.9.0.3", ready=False),
        endpoint("10.9.0.4", ready=False, serving=True, terminating=True),
        ports=(("nlk-web", 8080), ("other", 9)),
    )
    second = endpoints("ingress", endpoint("fd00::9"), name="ingress-6", kind="IPv6")
    world = World(balancer(), service(type="ClusterIP"), first, second)
    assert world.upstreams() == {
        "http/web": ["10.9.0.1:8080", "10.9.0.2:8080", "10.9.0.4:8080-", "[fd00::9]:8080"]
    }


@pytest.mark.parametrize(
    ("how", "node_port", "servers"),
    [
        ("NodePort", 30080, ["10.0.0.1:30080", "10.0.0.2:30080"]),
        ("NodePort", 0, ["192.0.2.7:80"]),
        ("Ingress", 30080, ["192.0.2.7:80"]),
    ],
)
def test_load_balancer_service_uses_its_nodes_or_its_ingress(
    how: str, node_port: int, servers: list[str]
) -> None:
    services = {"namespaces": ["*"], "loadBalancerServers": how}
    ingress = [{"ip": "192.0.2.7"}, {"hostname": "lb.example"}]
    requested = service("ingress", port(node_port=node_port), type="LoadBalancer", ingress=ingress)
    world = World(balancer(services=services), *NODES, requested)
    assert world.upstreams() == {"http/web": servers}


@pytest.mark.parametrize(
    ("resource", "reason", "words"),
    [
        (service("ingress", port(node_port=0)), "NoServers", "nodePort not found"),
        (service(type="ExternalName"), "InvalidPort", "type ExternalName is not supported"),
        (service(type="ClusterIP"), "NoServers", "no ready endpoint found"),
        (
            service("ingress", port(node_port=0), type="LoadBalancer"),
            "NoServers",
            "no IP address found in status.loadBalancer",
        ),
        (service(externalTrafficPolicy="Local"), "NoServers", "no suitable Node found"),
    ],
)
def test_upstream_without_servers_is_reported_and_unchanged(
    resource: Any, reason: str, words: str
) -> None:
    world = World(balancer(), *NODES, resource)
    world.own("http/web")
    assert world.upstreams() == {}
    assert world.released() == []
    assert words in world.finding_messages()[reason][0]


def test_upstream_without_servers_is_emptied_when_configured() -> None:
    world = World(balancer(whenEmpty="Remove"), *NODES, service(type="ClusterIP"))
    assert world.upstreams() == {"http/web": []}


def test_only_unclaimed_upstreams_are_released() -> None:
    ports = (port("nlk-web"), port("nlk-api", 30081))
    world = World(balancer(), *NODES, service("ingress", *ports))
    world.own("http/web", "http/api", "stream/web")
    assert world.released() == ["stream/web"]
    world.put(service("ingress", ports[0]))
    assert world.released() == ["http/api", "stream/web"]
    world.remove(service())
    assert world.released() == ["http/api", "http/web", "stream/web"]


def test_service_being_deleted_claims_nothing() -> None:
    going = service()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world = World(balancer(), *NODES, going)
    world.own("http/web")
    assert world.released() == ["http/web"]


def test_keep_on_delete_drops_upstreams_without_emptying_them() -> None:
    world = World(balancer(deletionPolicy="Retain"), *NODES)
    world.own("http/web")
    assert world.released() == []
    assert [str(name) for name in world.compiled().forgotten] == ["http/web"]


def test_older_service_wins_an_upstream_conflict() -> None:
    old = service("z-old", port(node_port=30090), created="2025-01-01T00:00:00Z")
    world = World(balancer(), *NODES, service("a-new"), old)
    assert world.upstreams() == {"http/web": ["10.0.0.1:30090", "10.0.0.2:30090"]}
    (note,) = world.compiled().notes
    assert note.service == ("Service", "nginx-ingress", "a-new")
    assert note.finding.reason is front.LoadBalancerReason.CONFLICT
    assert (
        "http/web already used by Service nginx-ingress/z-old port 'nlk-web'"
        in note.finding.message
    )
    world.remove(old)
    assert world.upstreams() == {"http/web": ["10.0.0.1:30080", "10.0.0.2:30080"]}
    assert world.compiled().notes == ()


def test_load_balancers_that_share_a_host_do_not_share_an_upstream() -> None:
    old = service("old", labels={"of": "one"}, created="2025-01-01T00:00:00Z")
    new = service("new", labels={"of": "two"})
    selecting = {
        name: {"namespaces": ["*"], "selector": {"matchLabels": {"of": name}}}
        for name in ("one", "two")
    }
    second = ("ExternalLoadBalancer", "nlk", "two")
    world = World(
        *NODES,
        old,
        new,
        balancer("edge", services=selecting["one"]),
        balancer("two", services=selecting["two"]),
    )
    assert list(world.upstreams()) == ["http/web"]
    assert world.upstreams(second) == {}
    assert "UpstreamConflict" in world.finding_messages(second)
    world.own("http/web", source=second)
    assert world.released(second) == []
    elsewhere = [{"url": "http://10.1.1.5:9000/api"}]
    world.put(balancer("two", services=selecting["two"], hosts=elsewhere))
    assert list(world.upstreams(second)) == ["http/web"]


def test_hosts_are_identified_by_url() -> None:
    urls = ["http://a:9000/api/", "http://a:9000/api", "ftp://b", "c:9000", "https://u:p@d/api"]
    world = World(balancer(hosts=[{"url": url} for url in urls]))
    compiled = world.plus()
    assert [host.url for host in compiled.hosts] == ["http://a:9000/api"]
    messages = world.finding_messages()["InvalidHost"]
    assert [words.split(":")[0] for words in messages] == [
        f"spec.hosts[{n}].url" for n in (2, 3, 4)
    ]
    assert "p@" not in str(compiled)


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        ({"caCertificateRef": {"name": "none"}}, "Secret nlk/none not found"),
        (
            {"caCertificateRef": {"name": "empty"}},
            "Secret nlk/empty: data[ca.crt] or data[tls.crt] not found",
        ),
        ({"clientCertificateRef": {"name": "ca"}}, "Secret nlk/ca: data[tls.crt] not found"),
    ],
)
def test_nothing_is_sent_when_secrets_are_missing_or_invalid(tls: Any, words: str) -> None:
    world = World(
        balancer(tls=tls), *NODES, service(), secret("ca", ca_crt=b"PEM"), secret("empty")
    )
    world.own("http/web")
    compiled = world.compiled()
    assert compiled.balancer is None
    assert compiled.forgotten == ()
    assert world.finding_messages() == {"InvalidSecretRef": [words]}


def test_certificates_are_read_from_secrets_and_updated() -> None:
    tls = {"caCertificateRef": {"name": "ca"}, "clientCertificateRef": {"name": "own"}}
    own = secret("own", tls_crt=b"CERT", tls_key=b"KEY")
    world = World(balancer(tls=tls), secret("ca", ca_crt=b"ONE"), own)
    compiled = world.plus()
    assert (compiled.hosts[0].tls.trust, compiled.hosts[0].tls.certificate) == (b"ONE", b"CERT")
    assert compiled.hosts[0].tls.key.reveal() == b"KEY"
    assert "KEY" not in repr(compiled)
    world.put(secret("ca", ca_crt=b"TWO"))
    compiled = world.plus()
    assert compiled.hosts[0].tls.trust == b"TWO"


NLK_OBJECTS = (
    *NODES,
    service(),
    service("elsewhere", port("nlk-other"), namespace="default"),
    secret("ca", tls_crt=b"CA"),
    secret("own", tls_crt=b"CERT", tls_key=b"KEY"),
)


def test_nlk_config_is_supported_unchanged() -> None:
    hosts = "http://10.1.1.4:9000/api, http://10.1.1.5:9000/api,"
    world = World(nlk(nginx_hosts=hosts, tls_mode="no-tls", log_level="warn"), *NLK_OBJECTS)
    compiled = world.plus(front.NLK_CONFIG_KEY)
    assert [host.url[7:15] for host in compiled.hosts] == ["10.1.1.4", "10.1.1.5"]
    assert world.upstreams(front.NLK_CONFIG_KEY) == {
        "http/web": ["10.0.0.1:30080", "10.0.0.2:30080"]
    }
    assert world.finding_messages(front.NLK_CONFIG_KEY) == {}


@pytest.mark.parametrize(
    ("mode", "verify", "trust", "certificate"),
    [
        ("no-tls", False, b"", b""),
        ("ca-tls", True, b"", b""),
        ("ca-mtls", True, b"", b"CERT"),
        ("ss-tls", True, b"CA", b""),
        ("ss-mtls", True, b"CA", b"CERT"),
    ],
)
def test_nlk_tls_modes_are_translated(
    mode: str, verify: bool, trust: bytes, certificate: bytes
) -> None:
    settings = {"ca_certificate": "ca", "client_certificate": "own", "tls_mode": mode}
    world = World(nlk(nginx_hosts="https://h/api", **settings), *NLK_OBJECTS)
    compiled = world.plus(front.NLK_CONFIG_KEY)
    tls = compiled.hosts[0].tls
    assert (tls.verify, tls.trust, tls.certificate) == (verify, trust, certificate)
    assert ("TLSVerificationDisabled" in world.finding_messages(front.NLK_CONFIG_KEY)) is not verify


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"tls_mode": "no-tls"}, "data.nginx-hosts: must be set"),
        ({"nginx_hosts": "http://a/api", "tls_mode": "off"}, "data.tls-mode: 'off' must be one of"),
        ({"nginx_hosts": "http://a/api", "tls_mode": "ss-tls"}, "data.ca-certificate: must be set"),
    ],
)
def test_invalid_nlk_config_is_reported(data: dict[str, str], words: str) -> None:
    world = World(nlk(**data), *NLK_OBJECTS)
    assert world.compiled(front.NLK_CONFIG_KEY).balancer is None
    assert words in world.finding_messages(front.NLK_CONFIG_KEY)["Invalid"][0]


def test_other_config_maps_are_ignored() -> None:
    assert front.relevant("ConfigMap", "nlk", "nlk-config")
    assert not front.relevant("ConfigMap", "nlk", "other")
    assert not front.relevant("ConfigMap", "default", "nlk-config")


def test_unsupported_type_is_reported() -> None:
    world = World(balancer(type="haproxy"))
    assert world.compiled().balancer is None
    assert world.finding_messages() == {
        "UnsupportedType": ["spec.type: 'haproxy' must be one of NginxPlus, Nginx, Envoy"]
    }


def test_irrelevant_node_change_runs_no_query() -> None:
    world = World(balancer(), *NODES, service())
    world.upstreams()
    runs = world.engine.runs
    again = node("a", "10.0.0.1")
    again["status"]["conditions"][0]["lastHeartbeatTime"] = "y"
    again["metadata"]["resourceVersion"] = "77"
    world.put(again)
    world.upstreams()
    assert world.engine.runs == runs


def test_upstream_parameters_come_from_the_load_balancer() -> None:
    requested = {"weight": 5, "maxConns": 100, "failTimeout": "30s"}
    compiled = World(balancer(parameters=requested), *NODES, service()).compiled(EDGE).balancer
    assert compiled is not None
    parameters = compiled.upstreams[0].parameters
    assert (parameters.weight, parameters.max_conns, parameters.fail_timeout) == (5, 100, "30s")
    assert parameters.slow_start is None
