"""Routes with invalid rules: PartiallyInvalid beside valid ones, otherwise not accepted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fakes.one_route import BACKEND, GATEWAY, ROUTE, Object, conditions, engine
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.status.gateway_status import unserved_ports
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.controller.outputs import by_subject
from gatehouse.dataplane.origin import Origin, port_origin

GOOD: Object = {"backendRefs": [BACKEND]}
BAD: Object = {
    "backendRefs": [BACKEND],
    "matches": [{"path": {"type": "PathPrefix", "value": "/bad"}}],
    "filters": [{"type": "Unheard"}],
}
KINDS = ["GRPCRoute", "HTTPRoute"]
PARTIALLY = "PartiallyInvalid=True UnsupportedValue: Dropped Rule"
REFUSED = "Accepted=False UnsupportedValue: "


def at(part: str, reason: str, *, route: str = "r", served: bool = False) -> Unsupported:
    """Return an unsupported part of a route, whose kind the caller sets."""
    return Unsupported(Origin("", "n", route, part), reason, served)


def told(kind: str, rules: list[Object], *unsupported: Unsupported) -> str:
    """Return the conditions of the route if the data plane does not support ``unsupported``."""
    compiler = engine(kind, rules)
    compiler.commit(
        by_subject(
            GATEWAY,
            [replace(part, origin=replace(part.origin, kind=kind)) for part in unsupported],
        )
    )
    with compiler.compile() as ask:
        return conditions(ask, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_some_invalid_rules_are_dropped(kind: str) -> None:
    report = told(kind, [GOOD, BAD])
    assert "Accepted=True Accepted: the route is accepted\n" in report
    assert f"{PARTIALLY}: rules[1].filters[0]: type Unheard" in report


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2])
def test_route_without_valid_rules_is_not_accepted(kind: str, count: int) -> None:
    report = told(kind, [BAD] * count)
    assert f"{REFUSED}rules[0].filters[0]: type Unheard" in report
    assert "PartiallyInvalid" not in report


@pytest.mark.parametrize("kind", KINDS)
def test_unsupported_rules_are_dropped(kind: str) -> None:
    report = told(kind, [GOOD, GOOD], at("rules[1].matches[0]", "too long"))
    assert "Accepted=True" in report
    assert f"{PARTIALLY}: rules[1]: too long" in report


@pytest.mark.parametrize("kind", KINDS)
def test_route_is_not_accepted_when_no_rule_is_supported(kind: str) -> None:
    report = told(
        kind,
        [GOOD, GOOD],
        at("rules[0].matches[0]", "too long"),
        at("rules[1].matches[0]", "too deep"),
    )
    assert f"{REFUSED}rules[0]: too long; rules[1]: too deep" in report
    assert "PartiallyInvalid" not in report


def test_rule_is_not_dropped_when_one_of_its_matches_is_supported() -> None:
    paths = [{"path": {"type": "PathPrefix", "value": value}} for value in ("/a", "/b")]
    report = told("HTTPRoute", [GOOD | {"matches": paths}], at("rules[0].matches[1]", "too long"))
    assert "Accepted=True" in report
    assert f"{PARTIALLY}: rules[0]: too long" in report


def test_route_is_not_accepted_when_all_rules_are_invalid_or_unsupported() -> None:
    report = told("HTTPRoute", [BAD, GOOD], at("rules[1].matches[0]", "too long"))
    assert f"{REFUSED}rules[0].filters[0]: type Unheard" in report
    assert "rules[1]: too long" in report
    assert "PartiallyInvalid" not in report


def test_unsupported_rules_of_another_route_do_not_count() -> None:
    report = told("HTTPRoute", [GOOD], at("rules[0].matches[0]", "too long", route="r2"))
    assert "Accepted=True" in report
    assert "too long" not in report


def test_unsupported_setting_does_not_drop_a_rule() -> None:
    report = told(
        "HTTPRoute", [GOOD], at("rules[0].matches[0]", "spec.x: no such setting", served=True)
    )
    assert (
        "Accepted=True Accepted: the route is accepted; not supported: rules[0]: spec.x: no"
        in report
    )
    assert "PartiallyInvalid" not in report


BROKEN = BACKEND | {"filters": [{"type": "Unheard"}]}


def test_rule_with_only_invalid_backends_is_dropped() -> None:
    report = told("HTTPRoute", [{"backendRefs": [BROKEN, BACKEND | {"weight": 0}]}])
    assert f"{REFUSED}rules[0].backendRefs[0].filters[0]: type Unheard" in report


def test_invalid_backend_beside_a_valid_backend_is_dropped() -> None:
    report = told("HTTPRoute", [{"backendRefs": [BROKEN, BACKEND]}])
    assert "Accepted=True" in report
    assert f"{PARTIALLY}: rules[0].backendRefs[0].filters[0]: type Unheard" in report


def test_unaccepted_route_is_not_partially_invalid() -> None:
    compiler = engine("HTTPRoute", [GOOD, BAD])
    metadata = {"name": "r", "namespace": "n"}
    spec = {"parentRefs": [{"name": "gw", "sectionName": "none"}], "rules": [GOOD, BAD]}
    route = gateway_api.decode_gateway_api_object("HTTPRoute", {"metadata": metadata, "spec": spec})
    compiler.commit({ROUTE["HTTPRoute"]: route})
    with compiler.compile() as ask:
        reported = conditions(ask, "HTTPRoute")
    assert "Accepted=False NoMatchingParent" in reported
    assert "PartiallyInvalid" not in reported


def test_namespace_can_be_named_port() -> None:
    """Regression: an unsupported route of namespace ``port`` was treated as a port."""
    compiler = engine("HTTPRoute", [GOOD])
    unsupported = (
        Unsupported(Origin("HTTPRoute", "port", "80", "rules[0].matches[0]"), "too long"),
        Unsupported(port_origin("n/gw", 80), "in use"),
    )
    compiler.commit(by_subject(GATEWAY, unsupported))
    with compiler.compile() as ask:
        assert unserved_ports(ask, GATEWAY) == {80: unsupported[1]}
