"""Default Gateways (GEP-3793): routes attach without naming them. Quotations are of the GEP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from fakes.admission import NOW
from fakes.compiled_objects import engine_with
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.incremental.query import Engine, Key

Object = dict[str, Any]
CLASS = {"metadata": {"name": "c"}, "spec": {"controllerName": gateway_api.NGINX}}
FOREIGN = {"metadata": {"name": "foreign"}, "spec": {"controllerName": "example.com/other"}}
ROUTE: Key = ("HTTPRoute", "apps", "r")
PORTS = {"HTTPRoute": 80, "GRPCRoute": 80, "TLSRoute": 443, "TCPRoute": 90, "UDPRoute": 90}


def _gateway(
    name: str, scope: str = "All", *, namespaces: str = "All", namespace: str = "infra",
    created: str = NOW, class_name: str = "c",
) -> tuple[str, Object]:  # fmt: skip
    """Return a Gateway with a listener of each protocol."""
    protocols: list[Object] = [
        {"name": "http", "port": 80, "protocol": "HTTP"},
        {"name": "tls", "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}},
        {"name": "tcp", "port": 90, "protocol": "TCP"},
        {"name": "udp", "port": 90, "protocol": "UDP"},
    ]
    allowed = {"allowedRoutes": {"namespaces": {"from": namespaces}}}
    listeners = [listener | allowed for listener in protocols]
    spec = {"gatewayClassName": class_name, "listeners": listeners, "defaultScope": scope}
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created}
    return "Gateway", {"metadata": metadata, "spec": spec}


def _route(kind: str = "HTTPRoute", scope: str = "All", **spec: Any) -> tuple[str, Object]:
    metadata = {"name": "r", "namespace": "apps", "creationTimestamp": NOW}
    return kind, {"metadata": metadata, "spec": {"useDefaultGateways": scope, **spec}}


def _engine(*objects: tuple[str, Object]) -> Engine:
    classes = [("GatewayClass", CLASS), ("GatewayClass", FOREIGN)]
    return engine_with([*classes, *objects], gateway_api.ControllerSettings(bind="any"))


def _commit(engine: Engine, kind: str, raw: Object) -> None:
    key = (kind, raw["metadata"]["namespace"], raw["metadata"]["name"])
    engine.commit({key: combined.decode_object(kind, raw)})


def _status(engine: Engine, key: Key = ROUTE) -> Object:
    with engine.compile() as ask:
        desired = ask(combined.desired_status, key)
    assert desired is not None
    return combined.merge_combined_status(key[0], {"conditions": []}, desired, NOW) or {}


def _parents(engine: Engine, key: Key = ROUTE) -> dict[str, str]:
    """Return the parents of a route by name, each with the status and message of `Accepted`."""
    entries = _status(engine, key).get("parents", ())
    return {entry["parentRef"]["name"]: _accepted(entry["conditions"]) for entry in entries}


def _accepted(conditions: Iterable[Object]) -> str:
    (accepted,) = (entry for entry in conditions if entry["type"] == "Accepted")
    return (
        "True" if accepted["status"] == "True" else f"{accepted['reason']}: {accepted['message']}"
    )


def _attached(engine: Engine, name: str) -> dict[str, int]:
    listeners = _status(engine, ("Gateway", "infra", name))["listeners"]
    return {entry["name"]: entry["attachedRoutes"] for entry in listeners}


@pytest.mark.parametrize("kind", PORTS)
def test_route_attaches_to_default_gateway_that_it_does_not_name(kind: str) -> None:
    """ "the Gateway MUST use status.parents to announce that it has claimed the Route"."""
    engine = _engine(_gateway("gw"), _route(kind))
    (entry,) = _status(engine, (kind, "apps", "r"))["parents"]
    assert entry["parentRef"] == {
        "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra", "name": "gw",
    }  # fmt: skip
    assert entry["controllerName"] == gateway_api.NGINX
    assert sum(_attached(engine, "gw").values()) == 1


@pytest.mark.parametrize(
    ("of_gateway", "of_route"), [("None", "All"), ("", "All"), ("All", "None"), ("All", "")]
)
def test_route_attaches_only_if_both_have_the_scope(of_gateway: str, of_route: str) -> None:
    """ "A defaulted Route MUST be accepted only by Gateways that have been configured with a
    matching" scope."""
    engine = _engine(_gateway("gw", of_gateway), _route(scope=of_route))
    assert _parents(engine) == {}
    assert _attached(engine, "gw")["http"] == 0


def test_route_attaches_to_all_default_gateways() -> None:
    """ "Gateways MUST NOT attempt to enforce a single default Gateway"."""
    engine = _engine(_gateway("b"), _gateway("a", created="2027-01-01T00:00:00Z"), _route())
    assert list(_parents(engine).items()) == [("b", "True"), ("a", "True")]


def test_default_gateways_of_other_controllers_are_left_to_them() -> None:
    engine = _engine(_gateway("gw", class_name="foreign"), _route())
    assert _parents(engine) == {}


def test_route_also_attaches_to_the_parents_that_it_names() -> None:
    """ "A Route MAY include explicit parentRefs in addition to setting spec.useDefaultGateways"."""
    references = [{"name": "named", "namespace": "infra"}, {"name": "gw", "namespace": "infra"}]
    gateways = (_gateway("named", "None"), _gateway("gw"))
    engine = _engine(*gateways, _route(parentRefs=references))
    parents = [entry["parentRef"] for entry in _status(engine)["parents"]]
    assert parents == references
    references[1]["sectionName"] = "tcp"
    engine = _engine(*gateways, _route(parentRefs=references))
    entries = _status(engine)["parents"]
    assert [entry["parentRef"].get("sectionName") for entry in entries] == [None, "tcp", None]
    assert _accepted(entries[1]["conditions"]).startswith("NotAllowedByListeners: parentRefs[1]: ")
    assert _accepted(entries[2]["conditions"]) == "True"
    assert _attached(engine, "gw") == {"http": 1, "tls": 0, "tcp": 0, "udp": 0}


def test_default_gateway_claims_only_routes_that_its_listeners_allow() -> None:
    """ "without such an AllowedRoutes, a default Gateway MUST accept only Routes from its own
    namespace". It adds nothing to the status of others, as it does not claim them."""
    same = _gateway("same", namespaces="Same")
    own = _gateway("own", namespaces="Same", namespace="apps")
    engine = _engine(same, own, _route())
    assert _parents(engine) == {"own": "True"}
    assert _attached(engine, "same")["http"] == 0


def test_hostname_that_no_listener_has_is_refused_by_default_gateway() -> None:
    """ "All other characteristics of a defaulted Route MUST behave the same as if all default
    Gateways were explicitly specified in parentRefs"."""
    kind, gateway = _gateway("gw")
    gateway["spec"]["listeners"][0]["hostname"] = "*.example"
    engine = _engine((kind, gateway), _route(hostnames=["other.test"]))
    message = "useDefaultGateways: hostnames: no hostname matches listener http (*.example)"
    assert _parents(engine) == {"gw": f"NoMatchingListenerHostname: {message}"}


def test_default_gateway_has_a_condition_while_it_is_one() -> None:
    """ "it MUST update its own status with a condition of type DefaultGateway and status true to
    indicate that it is a default Gateway and what its scope is", and without a scope "it MUST NOT
    set the DefaultGateway condition"."""

    def conditions(scope: str, before: Object) -> list[Object]:
        engine, key = _engine(_gateway("gw", scope)), ("Gateway", "infra", "gw")
        with engine.compile() as ask:
            desired = ask(combined.desired_status, key)
        assert desired is not None
        merged = combined.merge_combined_status("Gateway", before, desired, NOW) or before
        before.update(merged)
        return [entry for entry in merged["conditions"] if entry["type"] == "DefaultGateway"]

    before: Object = {}
    (condition,) = conditions("All", before)
    assert condition["status"] == "True"
    assert condition["message"] == "the Gateway has the default scope All"
    assert conditions("None", before) == []


def test_routes_follow_changes_of_the_default_gateways() -> None:
    """Deletion of a default Gateway: "all Routes that were bound to that Gateway MUST be
    unbound"."""
    engine = _engine(_gateway("old"), _route())
    assert _parents(engine) == {"old": "True"}
    _commit(engine, *_gateway("new"))
    assert _parents(engine) == {"old": "True", "new": "True"}
    engine.commit({("Gateway", "infra", "old"): None})
    assert _parents(engine) == {"new": "True"}
    _commit(engine, *_gateway("new", "None"))
    assert _parents(engine) == {}
    assert _attached(engine, "new")["http"] == 0


def test_status_has_at_most_the_parents_that_the_api_permits() -> None:
    """`status.parents` has at most 32 entries. The oldest default Gateways come first."""
    many = [_gateway(f"gw-{n}", created=f"2026-01-{n + 1:02}T00:00:00Z") for n in range(20)]
    references = [{"name": f"unknown-{n}"} for n in range(30)]
    parents = _parents(_engine(*many, _route(parentRefs=references)))
    assert parents == {"gw-0": "True", "gw-1": "True"}
