"""What machines serve that are ours in whole: listeners in front of Services' ports."""

from __future__ import annotations

from typing import Any

import pytest
from balancing import EDGE, Object, World, balancer, endpoint, endpoints, node, port, service

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
    return balancer(**{"type": "nginx", "hosts": hosts, "listeners": list(listeners), **spec})


def app(*ports: Object, **more: Any) -> Object:
    return service("app", *(ports or PORTS), annotations=STREAM, **more)


def served(world: World) -> Machines:
    found = world.compiled().balancer
    assert isinstance(found, Machines)
    return found


def clusters(world: World) -> dict[str, list[str]]:
    return {
        each.name: [f"{end.address} {end.port}" for end in each.endpoints]
        for each in served(world).gateway.clusters
    }


def test_a_listener_is_in_front_of_whichever_port_of_a_service_is_its_upstream() -> None:
    asked = machines(
        listener(443, "TLS", "db", "*.Shop.example"),
        listener(53, "UDP", "dns"),
        listener(53, "TCP", "db"),
        listener(80, "HTTP", "web", "shop.example"),
        listener(80, "HTTP", "web"),
        bindAddress="192.0.2.1",
    )
    world = World(asked, *NODES, app())
    found = served(world)
    assert [host.name for host in found.hosts] == ["lb-1", "lb-2"]
    gateway = found.gateway
    assert (gateway.name, gateway.bind_address) == ("ExternalLoadBalancer nlk/edge", "192.0.2.1")
    (http,) = gateway.listeners
    assert (http.port, [host.hostname for host in http.virtual_hosts]) == (80, ["", "shop.example"])
    assert [
        (each.port, each.protocol, [(h.hostname, h.backends[0].cluster) for h in each.hosts])
        for each in gateway.streams
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
    assert world.said() == {}


@pytest.mark.parametrize(
    ("listeners", "words"),
    [
        ((listener(80, "HTTP", "web"),) * 2, "port 80 has a listener already"),
        (
            (listener(80, "HTTP", "web", "a.b"), listener(80, "HTTP", "web", "A.b")),
            "port 80 has a listener for A.b already",
        ),
        ((listener(80, "HTTP", "web"), listener(80, "TCP", "db")), "port 80 speaks HTTP already"),
        ((listener(1, "UDP", "dns"),) * 2, "port 1 has a listener already"),
        ((listener(1, "TCP", "db"), listener(2, "TCP", "db", "a.b")), "clients of TCP name none"),
    ],
)
def test_of_listeners_that_exclude_each_other_the_first_is_heard(
    listeners: tuple[Object, ...], words: str
) -> None:
    world = World(machines(*listeners), *NODES, app())
    (said,) = world.said()["ListenerConflict"]
    assert said.startswith("spec.listeners[1]: ")
    assert words in said
    gateway = served(world).gateway
    ports = [each.port for each in gateway.listeners] + [each.port for each in gateway.streams]
    assert ports == [listeners[0]["port"]]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (listener(1, "HTTP", "db"), "no port of a Service is upstream http/db"),
        (listener(1, "TCP", "web"), "no port of a Service is upstream stream/web"),
        (
            listener(1, "UDP", "db"),
            "UDP: upstream stream/db is Service nginx-ingress/app port 'nlk-db', which is TCP",
        ),
        (listener(1, "TLS", "dns"), "which is UDP"),
    ],
)
def test_a_listener_whose_upstream_nobody_is_serves_nobody_and_is_told(
    asked: Object, words: str
) -> None:
    world = World(machines(asked), *NODES, app())
    (said,) = world.said()["UpstreamMissing"]
    assert said.startswith("spec.listeners[0]: ")
    assert words in said
    assert list(clusters(world).values()) == [[]]


def test_a_port_that_no_listener_names_is_told_on_its_service() -> None:
    world = World(machines(listener(80, "HTTP", "web")), *NODES, app())
    assert world.said() == {
        "NoListener": [
            "port 'nlk-db': no listener of ExternalLoadBalancer nlk/edge names stream/db",
            "port 'nlk-dns': no listener of ExternalLoadBalancer nlk/edge names stream/dns",
        ]
    }


def test_who_leaves_gets_nothing_new_unless_nobody_else_is_there() -> None:
    asked = machines(listener(80, "HTTP", "web"))
    there = service("app", port(), type="ClusterIP")
    gone = endpoint("10.9.0.1", ready=False, serving=True, terminating=True)
    world = World(asked, there, endpoints("app", gone, endpoint("10.9.0.2")))
    assert clusters(world) == {"http-web": ["10.9.0.2 8080"]}
    world.put(endpoints("app", gone))
    assert clusters(world) == {"http-web": ["10.9.0.1 8080"]}


def test_any_name_of_an_upstream_gives_a_cluster_of_its_own() -> None:
    names = ["web", "Web", "a b", "x" * 60, "-web", "web-"]
    ports = [port(f"nlk-{n}", 30080 + n) for n in range(len(names))]
    said = {f"gatehouse.dev/upstream.nlk-{n}": name for n, name in enumerate(names)}
    asked = machines(*(listener(n + 1, "HTTP", name) for n, name in enumerate(names)))
    world = World(asked, *NODES, service("app", *ports, annotations=said))
    assert world.said() == {}
    found = clusters(world)
    assert len(found) == len(names)
    assert all(len(name) <= 63 and name.startswith("http") for name in found)


def test_an_address_that_is_none_is_told() -> None:
    world = World(machines(listener(80, "HTTP", "web"), bindAddress="here; }"), *NODES, app())
    assert world.compiled().balancer is None
    assert world.said() == {"Invalid": ["spec.bindAddress: 'here; }' is no IP address"]}


class Story:
    """A world with the memory of what is ours, and of what was served last."""

    def __init__(self, **spec: Any) -> None:
        self.world = World(machines(listener(80, "HTTP", "web"), **spec), *NODES, app(port()))
        self.balancer = Balancer(EDGE, self.world.compiled(), {})

    def serves(self) -> list[int]:
        """The ports of the endpoints, after a pass as the controller makes it."""
        for _ in range(2):
            self.balancer.update(self.world.compiled())
            self.world.engine.commit({front.owned(EDGE): self.balancer.owned})
        found = self.balancer.compiled.balancer
        assert isinstance(found, Machines)
        return sorted({end.port for each in found.gateway.clusters for end in each.endpoints})


def test_nowhere_to_send_traffic_is_no_reason_to_forget_where_it_went() -> None:
    story = Story()
    assert story.serves() == [30080]
    story.world.remove(*NODES)
    assert story.serves() == [30080]
    story.world.remove(app())
    assert story.serves() == []


def test_unless_that_is_asked_for() -> None:
    story = Story(whenEmpty="Remove")
    assert story.serves() == [30080]
    story.world.remove(*NODES)
    assert story.serves() == []


def test_an_annotation_that_is_wrong_takes_no_traffic_down() -> None:
    story = Story()
    story.serves()
    wrong = service("app", port(), annotations={"nginxinc.io/nlk-web": "htpp"})
    story.world.put(wrong)
    assert story.serves() == [30080]
    assert story.world.said()["InvalidPort"] != []
    story.world.put(service("app", port("other")))
    assert story.serves() == []


def test_hosts_are_named_in_a_status_and_nothing_is_programmed_before_one_is_there() -> None:
    world = World(machines(listener(80, "HTTP", "web")), *NODES, app(port()))
    known = Balancer(EDGE, world.compiled(), {})
    status = front.status(known.compiled, {}, "", known.ordered(), 1)
    assert [host["name"] for host in status["hosts"]] == ["lb-1", "lb-2"]
    assert status["hostsInStep"] == "0/2"
    conditions = {each["type"]: each["reason"] for each in status["conditions"]}
    assert conditions == {"Accepted": "Accepted", "Programmed": "Pending"}
