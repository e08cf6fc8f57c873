"""What is ours on hosts: all that was wanted, until every host says that it is empty."""

from __future__ import annotations

from typing import Any

from balancing import World, balancer, node, port, service
from hosts import name

from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.dataplane.delivery import HostReport

HOSTS = [{"url": "http://a/api"}, {"url": "http://b/api"}]
OBJECTS = (node("n", "10.0.0.1"), service("ingress", port("nlk-web"), port("nlk-api", 30081)))


class Story:
    """A world with the memory of what is ours."""

    def __init__(self, **spec: Any) -> None:
        self.world = World(balancer(hosts=HOSTS, **spec), *OBJECTS)
        self.balancer = Balancer(("ExternalLoadBalancer", "nlk", "edge"), self.world.compiled(), {})
        self.turn()

    def turn(self) -> list[str]:
        """A pass as the controller makes it; gives what is ours then."""
        for _ in range(2):
            self.balancer.update(self.world.compiled())
            self.world.engine.commit({front.owned(self.balancer.key): self.balancer.owned})
        return sorted(str(each) for each in self.balancer.owned)

    def emptied(self, url: str, *names: str) -> list[str]:
        self.balancer.reports[url] = HostReport(url, empty=frozenset(map(name, names)))
        return self.turn()


def test_what_is_wanted_is_ours_until_every_host_says_that_it_is_empty() -> None:
    story = Story()
    assert story.turn() == ["http/api", "http/web"]
    story.world.put(service("ingress", port("nlk-web")))
    assert story.turn() == ["http/api", "http/web"]
    assert story.world.released() == ["http/api"]
    assert story.emptied("http://a/api", "http/api") == ["http/api", "http/web"]
    assert story.emptied("http://b/api", "http/api") == ["http/web"]
    assert story.world.released() == []


def test_an_old_word_of_emptiness_counts_for_nothing() -> None:
    story = Story()
    story.world.put(service("ingress", port("nlk-web")))
    story.turn()
    story.emptied("http://a/api", "http/api")
    story.world.put(OBJECTS[1])
    story.turn()
    story.world.put(service("ingress", port("nlk-web")))
    assert story.emptied("http://b/api", "http/api") == ["http/api", "http/web"]


def test_what_never_had_a_server_of_ours_is_not_ours() -> None:
    story = Story()
    story.world.put(service("other", port("nlk-human", 0)))
    assert story.turn() == ["http/api", "http/web"]


def test_what_is_kept_on_delete_is_let_go_of() -> None:
    story = Story(keepOnDelete=True)
    story.world.remove(OBJECTS[1])
    assert story.turn() == []
    assert story.world.released() == []


def test_while_settings_are_wrong_everything_stays_ours() -> None:
    story = Story()
    story.world.put(balancer(hosts=HOSTS, type="wrong"))
    story.world.remove(OBJECTS[1])
    assert story.turn() == ["http/api", "http/web"]


def test_a_status_remembers_what_is_ours() -> None:
    story = Story()
    status = front.status(story.world.compiled(), story.balancer.owned, "v", [], 1)
    assert front.owned_upstreams(status) == story.balancer.owned
    assert (
        front.owned_upstreams({"upstreams": [{"name": "x"}, {"context": "mail", "name": "y"}]})
        == {}
    )
