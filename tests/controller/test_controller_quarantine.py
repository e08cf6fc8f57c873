"""Quarantine: whatever a proxy rejects, only the cause is left out, and all else is served."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.held_back import held_back_key, without_held_back
from gatehouse.controller.quarantine import Quarantine
from gatehouse.controller.quarantines import process_report
from gatehouse.controller.verdicts import PORT_RETRY_SECONDS, RETRY
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.dataplane.origin import Origin, port_origin
from gatehouse.incremental.query import Key

GATEWAY = ("Gateway", "ns", "gw")
Rejects = Callable[[frozenset[tuple[str, str]]], str]
"""Returns an error for the routes of a configuration, by name and kind of action."""


def route(number: int, text: str = "") -> http.Route:
    """Build a route; ``text`` tells its versions apart."""
    origin = Origin("HTTPRoute", "ns", f"r{number}", "rules[0].matches[0]")
    match = http.Match(http.PathPrefix(f"/{number}"), headers=(http.ValueMatch("v", text),))
    return http.Route(f"ns/r{number}/0/0", match, http.Redirect(), origin=origin)


def compiled(routes: Iterable[http.Route], inputs: Mapping[Key, Any]) -> ir.GatewayConfiguration:
    """Compile as the front end does: with replacements, one virtual host for each route."""
    hosts = []
    for http_route in routes:
        served: http.Route | None = http_route
        replacement = inputs.get(gateway_api.replacement_key(GATEWAY, http_route.origin))
        for rejected, substitute in replacement.routes if replacement is not None else ():
            served = substitute if rejected == http_route else served
        hosts.append(http.VirtualHost(http_route.name, (served,) if served is not None else ()))
    listeners = (ir.Listener(80, "HTTP", tuple(hosts)),)
    taken = inputs.get(gateway_api.rejected_ports_key(GATEWAY), ())
    return ir.GatewayConfiguration("ns/gw", listeners=() if 80 in taken else listeners)


def content(gateway: ir.GatewayConfiguration) -> frozenset[tuple[str, str]]:
    """Return what a proxy sees of a configuration."""
    return frozenset(
        (
            http_route.origin.name,
            "failing" if isinstance(http_route.action, http.Respond) else "served",
        )
        for listener in gateway.listeners
        for host in listener.virtual_hosts
        for http_route in host.routes
    )


class World:
    """A controller in small, and one instance that applies each version at once."""

    def __init__(self, rejects: Rejects, trace: Mapping[str, Suspect] | None = None) -> None:
        self.rejects, self.trace = rejects, trace or {}
        self.routes: dict[int, http.Route] = {}
        self.specs: dict[Key, Any] = {}
        self.serving: frozenset[tuple[str, str]] = frozenset()
        self.now = 0.0
        """Time in seconds."""
        self.quarantine = Quarantine(
            GATEWAY, self._trace, self.specs.get, lambda _: True, clock=lambda: self.now
        )
        self.publications = 0
        self.version = ""
        self.accepted: list[frozenset[tuple[str, str]]] = []
        """Contents of all accepted versions."""
        self.arriving: list[int] = []
        """Routes that are added during a search, one after each publication."""

    def _trace(self, _: ir.GatewayConfiguration, message: str) -> list[Suspect]:
        return [suspect for text, suspect in self.trace.items() if text in message]

    def settle(self, steps: int = 0) -> str:
        """Publish until nothing changes, or so many times. Return the last error."""
        error = ""
        for _ in range(steps or 400):
            if self.arriving and self.quarantine.searching:
                number = self.arriving.pop()
                self.routes[number] = route(number)
            whole = compiled(self.routes.values(), self.quarantine.inputs)
            held = self.quarantine.inputs.get(held_back_key(GATEWAY))
            gateway = without_held_back(held, whole) if held is not None else whole
            version = repr([sorted(map(repr, entry.virtual_hosts)) for entry in gateway.listeners])
            changed = False
            if version != self.version or self.quarantine.unpublished:
                changed = self.quarantine.published(version, gateway, whole)
                self.version = version
                self.publications += 1
            if not changed:
                error = self.rejects(content(gateway))
                if error:
                    changed = self.quarantine.rejected(version, error, "nginx/1")
                else:
                    self.serving = content(gateway)
                    self.accepted.append(self.serving)
                    changed = self.quarantine.confirmed([version])
            if not changed:
                return error
        assert steps, "the quarantine does not settle"
        return error


def rejecting(*bad: str, failing: bool = False) -> Rejects:
    """Return a proxy that rejects routes by name, ``failing``: even if they only fail."""

    def rejects(served_content: frozenset[tuple[str, str]]) -> str:
        kinds = ("served", "failing") if failing else ("served",)
        return "bad configuration" if {(n, k) for n in bad for k in kinds} & served_content else ""

    return rejects


def names(world: World) -> set[str]:
    return {origin.name for origin in world.quarantine.left_out}


@given(
    st.integers(1, 30),
    st.sets(st.integers(0, 29), max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_only_bad_routes_are_left_out(
    count: int, chosen: set[int], known_good: bool, failing: bool
) -> None:
    bad = {number for number in chosen if number < count}
    world = World(rejecting(*(f"r{number}" for number in bad), failing=failing))
    if known_good:
        world.routes = {number: route(number) for number in range(count) if number not in bad}
        assert world.settle() == ""
    world.routes = {number: route(number) for number in range(count)}
    assert world.settle() == ""
    assert names(world) == {f"r{number}" for number in bad}
    good = {(f"r{number}", "served") for number in range(count) if number not in bad}
    assert good <= world.serving
    assert world.serving - good == (
        set() if failing else {(f"r{number}", "failing") for number in bad}
    )


@given(st.integers(1, 12), st.integers(1, 12), st.sets(st.integers(0, 23), min_size=1, max_size=5))
def test_routes_that_arrive_during_a_search_are_served_unless_they_are_bad(
    before: int, arriving: int, chosen: set[int]
) -> None:
    count = before + arriving
    bad = {0, *(number for number in chosen if number < count)}
    good = {(f"r{number}", "served") for number in range(count) if number not in bad}
    world = World(rejecting(*(f"r{number}" for number in bad)))
    world.settle()
    world.routes = {number: route(number) for number in range(before)}
    world.arriving = list(range(before, count))
    assert world.settle() == ""
    world.routes |= {number: route(number) for number in world.arriving}
    assert world.settle() == ""
    assert names(world) == {f"r{number}" for number in bad}
    assert good <= world.serving
    for earlier, later in itertools.pairwise(world.accepted):
        assert earlier & good <= later, "a step serves less than before"


def test_route_that_arrives_during_a_search_is_served_at_once() -> None:
    world = World(rejecting("r3"))
    world.settle()
    world.routes = {number: route(number) for number in range(64)}
    world.arriving = [100]
    assert world.settle() == ""
    first = next(
        index for index, served in enumerate(world.accepted) if ("r100", "served") in served
    )
    assert len(world.accepted) - first > 3, "the search goes on"
    assert names(world) == {"r3"}


def test_valid_routes_are_served_during_the_search() -> None:
    """A change of a good route is held back at most: its confirmed version stays."""
    configurations: list[frozenset[tuple[str, str]]] = []

    def rejects(served_content: frozenset[tuple[str, str]]) -> str:
        configurations.append(served_content)
        return rejecting("r3")(served_content)

    world = World(rejects)
    world.routes = {number: route(number) for number in range(8) if number != 3}
    world.settle()
    configurations.clear()
    world.routes = {number: route(number, "changed") for number in range(8)}
    assert world.settle() == ""
    for served_content in configurations:
        assert {name for name, kind in served_content if kind == "served"} >= {
            f"r{number}" for number in range(8) if number != 3
        }


def test_one_of_two_conflicting_routes_is_left_out() -> None:
    def rejects(served_content: frozenset[tuple[str, str]]) -> str:
        return "conflict" if {("r1", "served"), ("r2", "served")} <= served_content else ""

    world = World(rejects)
    world.routes = {number: route(number) for number in range(6)}
    assert world.settle() == ""
    assert len(names(world)) == 1
    assert names(world) < {"r1", "r2"}


def test_bad_route_among_thousands_is_found_with_few_versions() -> None:
    world = World(rejecting("r1234"))
    world.routes = {number: route(number) for number in range(2000)}
    assert world.settle() == ""
    assert names(world) == {"r1234"}
    assert world.publications < 40


def test_named_route_is_left_out_after_one_test() -> None:
    suspect = Suspect(route(1).origin)
    world = World(rejecting("r1"), {"bad": suspect})
    world.routes = {number: route(number) for number in range(100)}
    assert world.settle() == ""
    assert world.serving >= {("r1", "failing"), ("r2", "served")}
    assert len(world.accepted) == 2, "without it, and with its replacement"
    assert world.accepted[0] == {(f"r{number}", "served") for number in range(100) if number != 1}
    (finding,) = world.quarantine.findings
    assert finding.origin == route(1).origin
    assert finding.reason == "rejected by nginx/1: bad configuration"


def test_route_that_is_rejected_for_its_match_is_left_out() -> None:
    world = World(rejecting("r1", failing=True), {"bad": Suspect(route(1).origin, in_match=True)})
    world.routes = {number: route(number) for number in range(3)}
    assert world.settle() == ""
    assert world.serving == {("r0", "served"), ("r2", "served")}
    assert set(world.accepted) == {world.serving}


def test_route_whose_replacement_is_rejected_is_left_out() -> None:
    world = World(rejecting("r1", failing=True), {"bad": Suspect(route(1).origin)})
    world.routes = {number: route(number) for number in range(3)}
    assert world.settle() == ""
    assert world.serving == {("r0", "served"), ("r2", "served")}


@pytest.mark.parametrize("failing", [False, True])
def test_changed_route_is_retried(failing: bool) -> None:
    world = World(rejecting("r1", failing=failing))
    world.routes = {number: route(number) for number in range(3)}
    world.settle()
    assert names(world) == {"r1"}
    world.rejects = rejecting()
    world.settle()
    assert names(world) == {"r1"}, "it did not change"
    world.routes[1] = route(1, "repaired")
    assert world.settle() == ""
    assert names(world) == set()
    assert world.quarantine.inputs == {}
    assert ("r1", "served") in world.serving


def test_deleted_route_is_released() -> None:
    world = World(rejecting("r1", failing=True))
    world.routes = {number: route(number) for number in range(3)}
    world.settle()
    del world.routes[1]
    assert world.quarantine.forget(("HTTPRoute", "ns", "r1"))
    assert world.settle() == ""
    assert names(world) == set()


def test_unexplained_rejection_leaves_no_object_out() -> None:
    world = World(lambda _: "no space left on device")
    world.routes = {number: route(number) for number in range(5)}
    assert world.settle() == "no space left on device"
    assert names(world) == set()
    assert world.quarantine.inputs == {}
    assert not world.quarantine.searching
    world.rejects = rejecting()
    world.routes[5] = route(5)
    assert world.settle() == ""


def test_rejected_certificate_is_left_out_until_nothing_uses_its_content() -> None:
    origin = Origin("Secret", "ns", "tls")
    certificates = (ir.Certificate("cert-1", b"", ir.SecretBytes(b""), origin),)
    hosts = (http.VirtualHost("a.example", (), ("cert-1",)),)
    listeners = (ir.Listener(443, "HTTPS", hosts),)
    gateway = ir.GatewayConfiguration("ns/gw", listeners=listeners, certificates=certificates)
    key = gateway_api.rejected_credential_key(GATEWAY, "cert-1")
    used = {key}
    trace = [Suspect(origin, credential="cert-1")]
    quarantine = Quarantine(GATEWAY, lambda *_: trace, lambda _: None, used.__contains__)
    quarantine.published("v1", gateway)
    assert quarantine.rejected("v1", "key too small", "nginx/1")
    assert key not in quarantine.inputs, "no test was accepted without it"
    without = without_held_back(quarantine.inputs[held_back_key(GATEWAY)], gateway)
    assert without.certificates == ()
    assert not quarantine.published("v2", without, gateway)
    assert quarantine.confirmed(["v2"])
    reason = "rejected by nginx/1: key too small"
    assert quarantine.inputs == {key: gateway_api.RejectedCredential("cert-1", reason)}
    assert quarantine.left_out == (origin,)
    assert not quarantine.published("v2", ir.GatewayConfiguration("ns/gw"))
    used.clear()
    assert quarantine.published("v3", ir.GatewayConfiguration("ns/gw"))
    assert quarantine.inputs == {}


def test_rejected_port_is_left_out_until_retried() -> None:
    taken = True

    def rejects(served_content: frozenset[tuple[str, str]]) -> str:
        return "address in use" if taken and served_content else ""

    world = World(rejects, {"in use": Suspect(port_origin("ns/gw", 80))})
    world.routes = {0: route(0)}
    world.settle()
    assert world.quarantine.ports == {80}
    for taken in (True, False):
        assert not world.quarantine.retry()
        world.now += PORT_RETRY_SECONDS
        assert world.quarantine.retry()
        assert world.settle() == ""
        assert world.quarantine.ports == (frozenset({80}) if taken else frozenset())


def test_object_is_left_out_again_if_instances_leave_while_it_is_tried_again() -> None:
    """A new instance must not get what the last one rejected."""
    world = World(rejecting("r1"))
    world.routes = {0: route(0), 1: route(1)}
    world.settle()
    inputs = world.quarantine.inputs
    world.now += RETRY.maximum
    assert world.quarantine.retry()
    assert names(world) == set()
    assert process_report(world.quarantine, DataPlaneReport("ns/gw", "v"))
    assert names(world) == {"r1"}
    assert world.quarantine.inputs == inputs
    world.rejects = rejecting()
    assert world.settle() == ""
    assert names(world) == set(), "it is tried again as soon as an instance has a good version"


def test_object_deleted_while_it_is_tried_again_is_not_left_out_again() -> None:
    world = World(rejecting("r1"))
    world.routes = {0: route(0), 1: route(1)}
    world.settle()
    world.now += RETRY.maximum
    assert world.quarantine.retry()
    del world.routes[1]
    world.quarantine.forget(gateway_api.key_of(route(1).origin))
    process_report(world.quarantine, DataPlaneReport("ns/gw", "v"))
    assert names(world) == set()


@pytest.mark.parametrize("steps", range(4))
def test_retry_ends_when_its_objects_are_deleted(steps: int) -> None:
    """Its further steps change nothing of the configuration."""
    world = World(rejecting(*(f"r{number}" for number in range(1, 9))))
    world.routes = {number: route(number) for number in range(9)}
    world.settle()
    world.now += RETRY.maximum
    assert world.quarantine.retry()
    world.settle(steps)
    for number in range(1, 9):
        world.routes.pop(number)
        world.quarantine.forget(gateway_api.key_of(route(number).origin))
    assert world.settle() == ""
    assert not world.quarantine.searching
    assert (world.quarantine.left_out, world.quarantine.inputs) == ((), {})


def test_late_rejection_of_an_older_version_changes_nothing() -> None:
    """Instances answer one after the other; the second must not count as another rejection."""
    suspect = Suspect(route(1).origin)
    quarantine = Quarantine(GATEWAY, lambda *_: [suspect], lambda _: None, lambda _: True)
    routes = [route(number) for number in range(3)]
    quarantine.published("v1", compiled(routes, {}))
    assert quarantine.rejected("v1", "bad", "nginx/1")
    left_out = compiled(routes, quarantine.inputs)
    quarantine.published("v2", left_out)
    before = quarantine.inputs
    assert not quarantine.rejected("v1", "bad", "nginx/1")
    assert quarantine.inputs == before
