"""Owned upstreams: all that were claimed, until every host reports that they are empty."""

from __future__ import annotations

from typing import Any

from fakes.hosts import name
from fakes.load_balancer_world import World, balancer, node, port, service
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.dataplane.delivery import HostReport

HOSTS = [{"url": "http://a/api"}, {"url": "http://b/api"}]
OBJECTS = (node("n", "10.0.0.1"), service("ingress", port("nlk-web"), port("nlk-api", 30081)))


class Story:
    """A world that remembers the owned upstreams."""

    def __init__(self, **spec: Any) -> None:
        self.world = World(balancer(hosts=HOSTS, **spec), *OBJECTS)
        self.balancer = Balancer(("ExternalLoadBalancer", "nlk", "edge"), self.world.compiled(), {})
        self.turn()

    def turn(self) -> list[str]:
        """Run a compile pass as in the controller; return the owned upstreams."""
        for _ in range(2):
            self.balancer.update(self.world.compiled())
            self.world.engine.commit({front.owned(self.balancer.key): self.balancer.owned})
        return sorted(str(owned) for owned in self.balancer.owned)

    def emptied(self, url: str, *names: str) -> list[str]:
        self.balancer.reports[url] = HostReport(url, empty=frozenset(map(name, names)))
        return self.turn()


def test_upstream_is_owned_until_every_host_reports_it_empty() -> None:
    story = Story()
    assert story.turn() == ["http/api", "http/web"]
    story.world.put(service("ingress", port("nlk-web")))
    assert story.turn() == ["http/api", "http/web"]
    assert story.world.released() == ["http/api"]
    assert story.emptied("http://a/api", "http/api") == ["http/api", "http/web"]
    assert story.emptied("http://b/api", "http/api") == ["http/web"]
    assert story.world.released() == []


def test_outdated_report_of_an_empty_upstream_is_ignored() -> None:
    story = Story()
    story.world.put(service("ingress", port("nlk-web")))
    story.turn()
    story.emptied("http://a/api", "http/api")
    story.world.put(OBJECTS[1])
    story.turn()
    story.world.put(service("ingress", port("nlk-web")))
    assert story.emptied("http://b/api", "http/api") == ["http/api", "http/web"]


def test_upstream_that_never_had_a_server_is_not_owned() -> None:
    story = Story()
    story.world.put(service("other", port("nlk-human", 0)))
    assert story.turn() == ["http/api", "http/web"]


def test_keep_on_delete_ends_ownership() -> None:
    story = Story(deletionPolicy="Retain")
    story.world.remove(OBJECTS[1])
    assert story.turn() == []
    assert story.world.released() == []


def test_ownership_stays_while_the_spec_is_invalid() -> None:
    story = Story()
    story.world.put(balancer(hosts=HOSTS, type="wrong"))
    story.world.remove(OBJECTS[1])
    assert story.turn() == ["http/api", "http/web"]


def test_status_records_owned_upstreams() -> None:
    story = Story()
    status = front.balancer_status(story.world.compiled(), story.balancer.owned, "v", [], 1)
    assert front.owned_upstreams(status) == story.balancer.owned
    assert (
        front.owned_upstreams({"upstreams": [{"name": "x"}, {"context": "mail", "name": "y"}]})
        == {}
    )


def test_older_service_takes_no_upstream_that_another_one_has() -> None:
    story = Story()
    port_of = {"web": 30090}
    older = service("older", port("nlk-web", port_of["web"]), created="2020-01-01T00:00:00Z")
    before = story.world.upstreams()
    story.world.put(older)
    story.turn()
    assert story.world.upstreams() == before
    assert "UpstreamConflict" in story.world.finding_messages()
    restarted = World(balancer(hosts=HOSTS), *OBJECTS, older)
    status = front.balancer_status(story.world.compiled(), story.balancer.owned, "v", [], 1)
    restarted.engine.commit({front.owned(story.balancer.key): front.owned_upstreams(status)})
    assert restarted.upstreams() == before
    story.world.remove(OBJECTS[1])
    story.turn()
    assert story.world.upstreams() == {"http/web": ["10.0.0.1:30090"]}


def test_service_that_gave_an_upstream_up_has_no_precedence() -> None:
    selecting = {
        name: {"namespaces": ["*"], "selector": {"matchLabels": {"of": name}}}
        for name in ("edge", "two")
    }
    old = service("old", labels={"of": "edge"}, created="2020-01-01T00:00:00Z")
    new = service("new", labels={"of": "two"})
    keys = [("ExternalLoadBalancer", "nlk", name) for name in selecting]
    world = World(
        OBJECTS[0],
        old,
        *(balancer(name, hosts=HOSTS, services=selecting[name]) for name in selecting),
    )
    balancers = [Balancer(key, world.compiled(key), {}) for key in keys]

    def turn() -> list[list[str]]:
        for _ in range(2):
            for source in balancers:
                source.update(world.compiled(source.key))
                world.engine.commit({front.owned(source.key): source.owned})
        return [list(world.upstreams(key)) for key in keys]

    assert turn() == [["http/web"], []]
    world.put(new)
    assert turn() == [["http/web"], []]
    world.remove(old)
    assert turn() == [[], ["http/web"]]
    world.put(old)
    assert turn() == [[], ["http/web"]]
