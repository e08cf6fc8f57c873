"""External machines: listeners in front of ports of Services."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.load_balancer_world import (
    EDGE,
    Object,
    World,
    balancer,
    endpoint,
    endpoints,
    node,
    port,
    service,
)
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.load_balancing import Machines
from gatehouse.controller.load_balancers.balancer import Balancer

NODES = (node("a", "10.0.0.1"), node("b", "fd00::2"))
STREAM = {"nginxinc.io/nlk-db": "stream", "nginxinc.io/nlk-dns": "stream"}
PORTS = (port(), port("nlk-db", 30081), port("nlk-dns", 30082, protocol="UDP"))


def listener(number: int, protocol: str, upstream: str, hostname: str = "") -> Object:
    return {"port": number, "protocol": protocol, "upstream": upstream, "hostname": hostname}


def machines(*listeners: Object, **spec: Any) -> Object:
    hosts = [{"name": "lb-1"}, {"name": "lb-2"}]
    return balancer(**{"type": "Nginx", "hosts": hosts, "listeners": list(listeners), **spec})


def app(*ports: Object, **more: Any) -> Object:
    return service("app", *(ports or PORTS), annotations=STREAM, **more)


def served(world: World) -> Machines:
    compiled = world.compiled().balancer
    assert isinstance(compiled, Machines)
    return compiled


def clusters(world: World) -> dict[str, list[str]]:
    return {
        cluster.name: [f"{end.address} {end.port}" for end in cluster.endpoints]
        for cluster in served(world).gateway.clusters
    }


def test_listener_forwards_to_the_owner_of_its_upstream() -> None:
    requested = machines(
        listener(443, "TLS", "db", "*.Shop.example"),
        listener(53, "UDP", "dns"),
        listener(53, "TCP", "db"),
        listener(80, "HTTP", "web", "shop.example"),
        listener(80, "HTTP", "web"),
        bindAddress="192.0.2.1",
    )
    world = World(requested, *NODES, app())
    compiled = served(world)
    assert [host.name for host in compiled.hosts] == ["lb-1", "lb-2"]
    gateway = compiled.gateway
    assert (gateway.name, gateway.bind_address) == ("ExternalLoadBalancer nlk/edge", "192.0.2.1")
    (http,) = gateway.listeners
    assert (http.port, [host.hostname for host in http.virtual_hosts]) == (80, ["", "shop.example"])
    assert [
        (
            l4_listener.port,
            l4_listener.protocol,
            [(h.hostname, h.backends[0].cluster) for h in l4_listener.hosts],
        )
        for l4_listener in gateway.l4_listeners
    ] == [
        (53, "TCP", [("", "tcp-db")]),
        (53, "UDP", [("", "udp-dns")]),
        (443, "TLS", [("*.shop.example", "tcp-db")]),
    ]
    assert clusters(world) == {
        "http-web": ["10.0.0.1 30080", "fd00::2 30080"],
        "tcp-db": ["10.0.0.1 30081", "fd00::2 30081"],
        "udp-dns": ["10.0.0.1 30082", "fd00::2 30082"],
    }
    assert world.finding_messages() == {}


@pytest.mark.parametrize(
    ("listeners", "words"),
    [
        ((listener(80, "HTTP", "web"),) * 2, "port: 80 already has a listener"),
        (
            (listener(80, "HTTP", "web", "a.b"), listener(80, "HTTP", "web", "A.b")),
            "port: 80 already has a listener for A.b",
        ),
        (
            (listener(80, "HTTP", "web"), listener(80, "TCP", "db")),
            "port: 80 already used with protocol HTTP",
        ),
        ((listener(1, "UDP", "dns"),) * 2, "port: 1 already has a listener"),
        (
            (listener(1, "TCP", "db"), listener(2, "TCP", "db", "a.b")),
            "hostname: must be empty for protocol TCP",
        ),
    ],
)
def test_first_of_conflicting_listeners_is_served(
    listeners: tuple[Object, ...], words: str
) -> None:
    world = World(machines(*listeners), *NODES, app())
    (text,) = world.finding_messages()["ListenerConflict"]
    assert text.startswith("spec.listeners[1]: ")
    assert words in text
    gateway = served(world).gateway
    ports = [port_listener.port for port_listener in gateway.listeners] + [
        l4_listener.port for l4_listener in gateway.l4_listeners
    ]
    assert ports == [listeners[0]["port"]]


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        (listener(1, "HTTP", "db"), "upstream: http/db not claimed by any Service port"),
        (listener(1, "TCP", "web"), "upstream: stream/web not claimed by any Service port"),
        (
            listener(1, "UDP", "db"),
            "protocol: must be TCP for upstream stream/db of Service nginx-ingress/app "
            "port 'nlk-db'",
        ),
        (listener(1, "TLS", "dns"), "protocol: must be UDP"),
    ],
)
def test_listener_without_an_upstream_has_no_endpoints_and_is_reported(
    requested: Object, words: str
) -> None:
    world = World(machines(requested), *NODES, app())
    (text,) = world.finding_messages()["UpstreamNotFound"]
    assert text.startswith("spec.listeners[0]: ")
    assert words in text
    assert list(clusters(world).values()) == [[]]


def test_port_without_a_listener_is_reported_on_its_service() -> None:
    world = World(machines(listener(80, "HTTP", "web")), *NODES, app())
    assert world.finding_messages() == {
        "NoListener": [
            "port 'nlk-db': upstream stream/db not used by any listener of "
            "ExternalLoadBalancer nlk/edge",
            "port 'nlk-dns': upstream stream/dns not used by any listener of "
            "ExternalLoadBalancer nlk/edge",
        ]
    }


def test_draining_servers_get_no_traffic_unless_all_are_draining() -> None:
    requested = machines(listener(80, "HTTP", "web"))
    there = service("app", port(), type="ClusterIP")
    gone = endpoint("10.9.0.1", ready=False, serving=True, terminating=True)
    world = World(requested, there, endpoints("app", gone, endpoint("10.9.0.2")))
    assert clusters(world) == {"http-web": ["10.9.0.2 8080"]}
    world.put(endpoints("app", gone))
    assert clusters(world) == {"http-web": ["10.9.0.1 8080"]}


def test_every_upstream_name_has_a_distinct_cluster_name() -> None:
    names = ["web", "Web", "a b", "x" * 60, "-web", "web-"]
    ports = [port(f"nlk-{n}", 30080 + n) for n in range(len(names))]
    annotations = {f"gatehouse.dev/upstream.nlk-{n}": name for n, name in enumerate(names)}
    requested = machines(*(listener(n + 1, "HTTP", name) for n, name in enumerate(names)))
    world = World(requested, *NODES, service("app", *ports, annotations=annotations))
    assert world.finding_messages() == {}
    names_used = clusters(world)
    assert len(names_used) == len(names)
    assert all(len(name) <= 63 and name.startswith("http") for name in names_used)


def test_invalid_bind_address_is_reported() -> None:
    world = World(machines(listener(80, "HTTP", "web"), bindAddress="here; }"), *NODES, app())
    assert world.compiled().balancer is None
    assert world.finding_messages() == {
        "Invalid": ["spec.bindAddress: 'here; }' must be an IP address"]
    }


class Story:
    """A world that remembers the owned upstreams and the last served configuration."""

    def __init__(self, **spec: Any) -> None:
        self.world = World(machines(listener(80, "HTTP", "web"), **spec), *NODES, app(port()))
        self.balancer = Balancer(EDGE, self.world.compiled(), {})

    def serves(self) -> list[int]:
        """Return the ports of the endpoints after a compile pass, as in the controller."""
        for _ in range(2):
            self.balancer.update(self.world.compiled())
            self.world.engine.commit({front.owned(EDGE): self.balancer.owned})
        compiled = self.balancer.compiled.balancer
        assert isinstance(compiled, Machines)
        return sorted(
            {end.port for cluster in compiled.gateway.clusters for end in cluster.endpoints}
        )


def test_upstream_keeps_its_endpoints_without_nodes() -> None:
    story = Story()
    assert story.serves() == [30080]
    story.world.remove(*NODES)
    assert story.serves() == [30080]
    story.world.remove(app())
    assert story.serves() == []


def test_upstream_is_emptied_without_nodes_when_when_empty_is_remove() -> None:
    story = Story(whenEmpty="Remove")
    assert story.serves() == [30080]
    story.world.remove(*NODES)
    assert story.serves() == []


def test_invalid_annotation_does_not_interrupt_traffic() -> None:
    story = Story()
    story.serves()
    wrong = service("app", port(), annotations={"nginxinc.io/nlk-web": "htpp"})
    story.world.put(wrong)
    assert story.serves() == [30080]
    assert story.world.finding_messages()["InvalidPort"] != []
    story.world.put(service("app", port("other")))
    assert story.serves() == []


def test_status_lists_hosts_and_is_not_programmed_before_connection() -> None:
    world = World(machines(listener(80, "HTTP", "web")), *NODES, app(port()))
    known = Balancer(EDGE, world.compiled(), {})
    status = front.balancer_status(known.compiled, {}, "", known.ordered(), 1)
    assert [host["name"] for host in status["hosts"]] == ["lb-1", "lb-2"]
    assert status["readyHosts"] == "0/2"
    conditions = {condition["type"]: condition["reason"] for condition in status["conditions"]}
    assert conditions == {"Accepted": "Accepted", "Programmed": "Pending"}
