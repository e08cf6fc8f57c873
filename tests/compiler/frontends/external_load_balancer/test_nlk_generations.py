"""Both generations of nginx-loadbalancer-kubernetes: its configuration and its Services."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from fakes.load_balancer_world import (
    World,
    endpoint,
    endpoints,
    nlk,
    nlk_file,
    node,
    port,
    secret,
    service,
)
from gatehouse.compiler.frontends import external_load_balancer as front

KEY = front.NLK_CONFIG_KEY
CHART = "nlk-nginxaas-loadbalancer-kubernetes-nlk-config"
CHART_KEY = ("ConfigMap", "nlk", CHART)
CHART_SECRET = "nlk-nginxaas-loadbalancer-kubernetes-nginxaas-api-key"
ANNOTATED = {"nginx.com/nginxaas": "nginxaas"}
OLD_LABEL: Any = {"node-role.kubernetes.io/master": ""}
NEW_LABEL: Any = {"node-role.kubernetes.io/control-plane": ""}
NODES = (
    node("a", "10.0.0.1"),
    node("b", "10.0.0.2"),
    node("m", "10.0.0.9", **OLD_LABEL),
)
FILE = """
log-level: "info"
nginx-hosts: ["https://10.1.1.4:9000/api", "https://10.1.1.5:9000/api"]
tls-mode: "ca-tls"
"""


def test_services_of_1x_are_selected_by_annotation_and_port_name_in_every_namespace() -> None:
    ports = (port("http-web"), port("stream-db-1", 30081), port("metrics", 30082))
    world = World(
        nlk_file(FILE),
        *NODES,
        service("shop", *ports, namespace="shop", annotations=ANNOTATED),
        service("other", port("http-other"), annotations={"nginx.com/nginxaas": "another"}),
        service("plain", port("http-plain")),
        service("old", port("nlk-old"), annotations=ANNOTATED),
    )
    assert world.upstreams(KEY) == {
        "http/web": ["10.0.0.1:30080", "10.0.0.2:30080"],
        "stream/db-1": ["10.0.0.1:30081", "10.0.0.2:30081"],
    }
    assert [host.url for host in world.plus(KEY).hosts] == [
        "https://10.1.1.4:9000/api",
        "https://10.1.1.5:9000/api",
    ]
    assert world.finding_messages(KEY) == {}


def test_annotation_value_of_1x_is_configurable() -> None:
    custom = {"nginx.com/nginxaas": "second"}
    world = World(
        nlk_file(FILE + "service-annotation-match: second\n"),
        *NODES,
        service("one", port("http-one"), annotations=ANNOTATED),
        service("two", port("http-two"), annotations=custom),
    )
    assert list(world.upstreams(KEY)) == ["http/two"]


def test_cluster_ip_and_load_balancer_services_of_1x() -> None:
    world = World(
        nlk_file(FILE),
        *NODES,
        service("inside", port("http-in", 0), type="ClusterIP", annotations=ANNOTATED),
        endpoints("inside", endpoint("10.9.0.1", ready=True), ports=(("http-in", 8080),)),
        service(
            "outside",
            port("stream-out", 30099),
            type="LoadBalancer",
            ingress=[{"ip": "192.0.2.7"}],
            annotations=ANNOTATED,
        ),
    )
    assert world.upstreams(KEY) == {
        "http/in": ["10.9.0.1:8080"],
        "stream/out": ["192.0.2.7:80"],
    }


def test_1x_keeps_control_plane_nodes_with_the_new_label_only() -> None:
    single = node("cp", "10.0.0.3", **NEW_LABEL)
    both = service("s", port("http-web"), annotations=ANNOTATED)
    world = World(nlk_file(FILE), single, NODES[2], both)
    assert world.upstreams(KEY) == {"http/web": ["10.0.0.3:30080"]}


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        (port("http-"), "port 'http-': '' must be a valid upstream name"),
        (port("http-dns", protocol="UDP"), "name must begin with stream- for UDP"),
    ],
)
def test_invalid_port_of_1x_is_reported(ports: Any, words: str) -> None:
    world = World(nlk_file(FILE), *NODES, service("s", ports, annotations=ANNOTATED))
    (message,) = world.finding_messages(KEY)["InvalidPort"]
    assert "Service nginx-ingress/s: " in message
    assert words in message


@pytest.mark.parametrize(
    ("mode", "verify"),
    [("", True), ("ca-tls", True), ("no-tls", False), ("skip-verify-tls", False)],
)
def test_tls_modes_of_1x(mode: str, verify: bool) -> None:
    world = World(nlk_file(f'nginx-hosts: https://h/api\ntls-mode: "{mode}"\n'), *NODES)
    assert world.plus(KEY).hosts[0].tls.verify is verify
    messages = world.finding_messages(KEY).get("TLSVerificationDisabled", [])
    assert [message.split(":")[0] for message in messages] == (
        [] if verify else ["data[config.yaml].tls-mode does not verify"]
    )


def test_unknown_tls_mode_of_1x_verifies_and_is_reported() -> None:
    world = World(nlk_file("nginx-hosts: https://h/api\ntls-mode: ss-tls\n"), *NODES)
    assert world.plus(KEY).hosts[0].tls.verify
    (message,) = world.finding_messages(KEY)["Invalid"]
    assert message == (
        "data[config.yaml].tls-mode: 'ss-tls' must be one of ca-tls, no-tls, skip-verify-tls; "
        "certificates are verified"
    )


def header(key: bytes) -> bytes:
    return b"ApiKey " + base64.b64encode(key)


def test_api_key_is_read_from_the_secret_of_the_chart() -> None:
    key_secret = secret(CHART_SECRET, nginxaasApiKey=b"k1")
    world = World(nlk_file(FILE, CHART), *NODES, key_secret)
    compiled = world.plus(CHART_KEY)
    assert {host.authorization.reveal() for host in compiled.hosts} == {header(b"k1")}
    assert "k1" not in repr(compiled)
    world.put(secret(CHART_SECRET, nginxaasApiKey=b"k2"))
    assert world.plus(CHART_KEY).hosts[0].authorization.reveal() == header(b"k2")
    world.put(secret(CHART_SECRET, nginxaasApiKey=b""))
    assert world.plus(CHART_KEY).hosts[0].authorization.reveal() == b""
    world.put(secret(CHART_SECRET, other=b"x"))
    assert world.compiled(CHART_KEY).balancer is None
    words = f"Secret nlk/{CHART_SECRET}: data[nginxaasApiKey] not found"
    assert world.finding_messages(CHART_KEY) == {"InvalidSecretRef": [words]}


def test_api_key_in_the_file_is_used_without_the_secret() -> None:
    world = World(nlk_file(FILE + "NGINXAAS_DATAPLANE_API_KEY: mine\n"), *NODES)
    assert world.plus(KEY).hosts[0].authorization.reveal() == header(b"mine")
    world.put(secret("nginxaas-api-key", nginxaasApiKey=b"secret"))
    assert world.plus(KEY).hosts[0].authorization.reveal() == header(b"secret")
    world = World(nlk_file(FILE), *NODES)
    assert world.plus(KEY).hosts[0].authorization.reveal() == b""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [b", "data[config.yaml]: must be YAML (line 1)"),
        ("[" * 100_000, "data[config.yaml]: must be YAML"),
        ("- a", "data[config.yaml]: must be a mapping"),
        ("tls-mode: no-tls", "data[config.yaml].nginx-hosts: must be set"),
        ("nginx-hosts: []", "data[config.yaml].nginx-hosts: must be set"),
        ("nginx-hosts: {a: b}", "data[config.yaml].nginx-hosts: must be a URL or a list of URLs"),
        (
            "nginx-hosts: http://a/api\ntls-mode: [x]",
            "data[config.yaml].tls-mode: must be a string",
        ),
    ],
)
def test_invalid_file_is_reported_and_hosts_stay_unchanged(text: str, words: str) -> None:
    world = World(nlk_file(text), *NODES)
    compiled = world.compiled(KEY)
    assert (compiled.balancer, compiled.nlk_version) == (None, "1.x")
    assert world.finding_messages(KEY) == {"Invalid": [words]}


def test_invalid_host_of_1x_is_reported_and_others_are_served() -> None:
    world = World(nlk_file("nginx-hosts: [ftp://a, http://b/api]"), *NODES)
    assert [host.url for host in world.plus(KEY).hosts] == ["http://b/api"]
    (message,) = world.finding_messages(KEY)["InvalidHost"]
    assert message.startswith("data[config.yaml].nginx-hosts: 'ftp://a' must have the form")


def test_config_map_with_both_formats_is_rejected() -> None:
    both = nlk(nginx_hosts="http://a/api")
    both["data"]["config.yaml"] = FILE
    words = "data.nginx-hosts: must not be set together with data[config.yaml]"
    assert World(both).finding_messages(KEY) == {"Invalid": [words]}


def test_both_generations_are_separate_sources_with_their_generation_in_the_status() -> None:
    world = World(
        nlk(nginx_hosts="http://a/api"),
        nlk_file("nginx-hosts: http://b/api", CHART),
        *NODES,
        service("old", port("nlk-old")),
        service("new", port("http-new"), annotations=ANNOTATED),
    )
    with world.engine.compile() as ask:
        assert set(ask(front.load_balancer_sources)) == {KEY, CHART_KEY}
    assert (list(world.upstreams(KEY)), list(world.upstreams(CHART_KEY))) == (
        ["http/old"],
        ["http/new"],
    )
    versions = {
        key: front.balancer_status(world.compiled(key), {}, "", [], 0)["nlkVersion"]
        for key in (KEY, CHART_KEY)
    }
    assert versions == {KEY: "0.x", CHART_KEY: "1.x"}


def test_only_config_maps_of_nlk_are_sources() -> None:
    assert front.relevant(*CHART_KEY)
    assert not front.relevant("ConfigMap", "shop", CHART)
    assert front.relevant("ConfigMap", "shop", CHART, "shop")
    assert not front.relevant(*CHART_KEY, "shop")
    assert not front.relevant("ConfigMap", "nlk", f"{CHART}-status")
    assert not front.relevant("ConfigMap", "nlk", "mynlk-config")
    other = nlk_file(FILE, CHART)
    other["data"] = {"nginx-hosts": "http://a/api"}
    with World(other).engine.compile() as ask:
        assert ask(front.load_balancer_sources) == ()
