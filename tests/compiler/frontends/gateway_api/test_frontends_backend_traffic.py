"""XBackendTrafficPolicies: what they set, which of them applies to a rule, and their conditions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes import one_route
from fakes.one_route import BACKEND, GATEWAY, routes
from gatehouse.apis import backend_traffic
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.extensions import backend_traffic_policies
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.sessions import sessions_of
from gatehouse.compiler.ir.settings import Balancing, RetryBudget
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Engine, Key

Object = dict[str, Any]
KIND = "XBackendTrafficPolicy"
POLICY: Key = (KIND, "n", "p")
PORTS = {"ports": [{"name": "p", "port": 80, "protocol": "TCP"}]}
COOKIE = {"cookie": {"name": "shop"}}
ACCEPTED = "Accepted True Accepted the policy is accepted"


def spec(*services: str, **fields: Any) -> Object:
    """Return the spec of a policy of Services, by default ``s``."""
    targets = [{"group": "", "kind": "Service", "name": name} for name in services or ("s",)]
    return {"targetRefs": targets, **fields}


def problems(**fields: Any) -> tuple[str, ...]:
    raw = {"metadata": {"name": "p", "namespace": "n"}, "spec": spec(**fields)}
    view = msgspec.convert(raw, backend_traffic.XBackendTrafficPolicy)
    return backend_traffic_policies.backend_traffic_policy(view, ResourceLimits()).problems


def engine(
    *policies: tuple[Key, Object], rules: list[Object] | None = None, kind: str = "HTTPRoute"
) -> Engine:
    """Return an engine with a route to the Service ``s``, and policies. Services: ``s``, ``t``."""
    return one_route.engine(
        kind,
        rules or [{"backendRefs": [BACKEND]}],
        (("Service", "n", "t"), PORTS),
        *policies,
    )


def sessions(world: Engine) -> list[ir.Persistence | None]:
    """Return the session persistence of each backend, in the order of the rules."""
    with world.compile() as ask:
        return [session for route in routes(ask) for session in sessions_of(route.action)]


def budgets(world: Engine) -> list[RetryBudget | None]:
    """Return the retry budget of each cluster."""
    with world.compile() as ask:
        compiled = ask(gateway_api.compile_gateway, GATEWAY)
        assert compiled is not None
        return [cluster.settings.retry_budget for cluster in compiled.clusters]


def status(world: Engine, key: Key = POLICY) -> list[str]:
    """Return the conditions of a policy: type, status, reason and message."""
    return [
        " ".join(entry[name] for name in ("type", "status", "reason", "message"))
        for ancestor in entries(world, key)
        for entry in ancestor["conditions"]
    ]


def entries(world: Engine, key: Key = POLICY) -> list[Object]:
    """Return the entries of the status of a policy."""
    with world.compile() as ask:
        outcome = ask(gateway_api.gateway_api_status, key)
    merged = gateway_api.GATEWAY_API_FRONT_END.merge_status(None, outcome, "T")
    return [*(merged or {}).get("ancestors", ())]


@pytest.mark.parametrize(
    ("session", "problem"),
    [
        ({"cookie": {"name": "a;b"}}, "cookie.name: must be a valid cookie or header name"),
        ({"cookie": {"name": "a" * 257}}, "cookie.name: must have at most 256 characters"),
        ({"cookie": {"path": "/; Domain=x"}}, "cookie.path: '/; Domain=x' must be a path"),
        ({"cookie": {"path": "/" * 1025}}, "cookie.path: must have at most 1024 characters"),
        ({"cookie": {}, "absoluteTimeout": "1x"}, "absoluteTimeout: '1x' must be a duration"),
        ({"type": "Header", "header": {"name": "Connection"}}, "header.name: header Connection"),
        ({"type": "Header", "header": {"name": "X-Gh-Retry-On"}}, "header.name: header X-Gh-Retry"),
        ({"type": "Header", "header": {"name": "a.b"}}, "header.name: must have letters, digits"),
        ({"type": "Address"}, "type: must be Cookie or Header"),
    ],
)
def test_invalid_session_is_named_and_not_served(session: Object, problem: str) -> None:
    (message,) = problems(sessionPersistence=session)
    assert message.startswith(f"spec.sessionPersistence.{problem}")
    world = engine((POLICY, spec(sessionPersistence=session)))
    assert sessions(world) == [None]
    assert status(world) == [f"Accepted False Invalid {message}"]


@pytest.mark.parametrize(
    ("constraint", "problem"),
    [
        ({"budget": {"percent": 101}}, "budget.percent: must be from 0 to 100"),
        ({"budget": {"percent": -1}}, "budget.percent: must be from 0 to 100"),
        ({"budget": {"interval": "999ms"}}, "budget.interval: must be a duration from 1s to 1h"),
        ({"budget": {"interval": "61m"}}, "budget.interval: must be a duration from 1s to 1h"),
        ({"budget": {"interval": "1d"}}, "budget.interval: must be a duration from 1s to 1h"),
        ({"minRetryRate": {"count": 0}}, "minRetryRate.count: must be from 1 to 1000000"),
        ({"minRetryRate": {"count": 1_000_001}}, "minRetryRate.count: must be from 1 to 1000000"),
        ({"minRetryRate": {"interval": "0s"}}, "minRetryRate.interval: must be a duration from"),
        ({"minRetryRate": {"interval": "2h"}}, "minRetryRate.interval: must be a duration from"),
    ],
)
def test_invalid_retry_constraint_is_named_and_not_served(constraint: Object, problem: str) -> None:
    (message,) = problems(retryConstraint=constraint)
    assert message.startswith(f"spec.retryConstraint.{problem}")
    world = engine((POLICY, spec(retryConstraint=constraint)))
    assert budgets(world) == [None]
    assert status(world) == [f"Accepted False Invalid {message}"]


@pytest.mark.parametrize(
    ("constraint", "budget"),
    [
        ({}, RetryBudget(20, 10)),
        ({"budget": {"percent": 0}, "minRetryRate": {}}, RetryBudget(0, 10)),
        ({"minRetryRate": {"count": 9, "interval": "2s"}}, RetryBudget(20, 4.5)),
        ({"minRetryRate": {"count": 1_000_000, "interval": "1ms"}}, RetryBudget(20, 1e9)),
    ],
)
def test_clusters_of_a_service_have_its_budget(constraint: Object, budget: RetryBudget) -> None:
    """Defaults are those of the CRD: 20 percent, and 10 retries per second."""
    world = engine((POLICY, spec(retryConstraint=constraint)))
    assert budgets(world) == [budget]


def test_budget_and_settings_of_upstreams_are_merged() -> None:
    upstream: Key = ("UpstreamSettingsPolicy", "n", "u")
    target = {"group": "core", "kind": "Service", "name": "s"}
    world = engine(
        (POLICY, spec(retryConstraint={})),
        (upstream, {"targetRefs": [target], "loadBalancingMethod": "least_conn"}),
    )
    with world.compile() as ask:
        compiled = ask(gateway_api.compile_gateway, GATEWAY)
        assert compiled is not None
        (cluster,) = compiled.clusters
    assert cluster.settings.retry_budget == RetryBudget(20, 10)
    assert cluster.settings.balancing == Balancing("least-connections")
    assert cluster.settings.source("retry_budget") == Origin(KIND, "n", "p", "retryConstraint")


@pytest.mark.parametrize(
    ("group", "kind"), [("", "ServiceImport"), ("core", "Service"), ("", "HTTPRoute")]
)
def test_policy_targets_services_only(group: str, kind: str) -> None:
    target = {"group": group, "kind": kind, "name": "s"}
    (message,) = problems(targetRefs=[target], sessionPersistence=COOKIE)
    assert message.startswith("spec.targetRefs[0]: kind ")
    assert message.endswith(" is not supported: must be Service")


def test_target_of_an_unknown_kind_is_named_with_its_group() -> None:
    """ "TargetNotFound" is the reason of "an invalid target resource" (PolicyConditionReason)."""
    target = {"group": "multicluster.x-k8s.io", "kind": "ServiceImport", "name": "s"}
    world = engine((POLICY, spec(targetRefs=[target], sessionPersistence=COOKIE)))
    (entry,) = entries(world)
    assert entry["ancestorRef"] == {**target, "namespace": "n"}
    assert status(world) == ["Accepted False TargetNotFound targetRef: ServiceImport n/s not found"]


@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute"])
def test_rule_without_sessions_has_those_of_its_service(kind: str) -> None:
    fields = {**COOKIE, "absoluteTimeout": "1h"}
    world = engine((POLICY, spec(sessionPersistence=fields)), kind=kind)
    (session,) = sessions(world)
    assert session is not None
    assert (session.kind, session.path, session.absolute_timeout) == ("cookie", "/", 3600)
    assert session.origin == Origin(KIND, "n", "p", "sessionPersistence")
    assert status(world) == [ACCEPTED]


def test_sessions_of_a_rule_precede_those_of_its_service() -> None:
    """ "Any configuration that is specified at Route Rule level MUST override" (GEP-1619)."""
    rule = {"backendRefs": [BACKEND], "sessionPersistence": {"cookie": {"name": "own"}}}
    world = engine((POLICY, spec(sessionPersistence=COOKIE)), rules=[rule])
    assert sessions(world) == [ir.Persistence("cookie", "own")]


def test_rules_of_one_service_do_not_share_a_cookie() -> None:
    """ "Route rules referencing the same service MUST NOT share persistent sessions (i.e. the same
    cookie), even if the session persistence is attached to the service" (GEP-1619)."""
    paths = [{"path": {"type": "PathPrefix", "value": value}} for value in ("/a", "/b")]
    rules = [{"matches": [match], "backendRefs": [BACKEND]} for match in paths]
    world = engine((POLICY, spec(sessionPersistence=COOKIE)), rules=rules)
    names = [session.name for session in sessions(world) if session is not None]
    assert len({*names}) == 2
    assert all(name.startswith("shop-") for name in names)


def test_header_has_the_name_of_the_policy_because_clients_send_it() -> None:
    session = {"type": "Header", "header": {"name": "X-Shop"}}
    (served,) = sessions(engine((POLICY, spec(sessionPersistence=session))))
    assert served is not None
    assert (served.kind, served.name) == ("header", "X-Shop")


SHARED_RULE = {"backendRefs": [{"name": "t", "port": 80}, BACKEND]}


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ({"p": ["s"]}, ["", "p"]),
        ({"p": ["t"]}, ["p", ""]),
        ({"p": ["s", "t"]}, ["p", "p"]),
        ({"p": ["s"], "q": ["t"]}, ["q", "p"]),
        ({"p": ["s"], "q": ["s", "t"]}, ["", "p"]),
    ],
    ids=["second", "first", "one of both", "one of each", "one in conflict"],
)
def test_policy_of_a_service_applies_to_no_other_backend_of_a_rule(
    targets: dict[str, list[str]], expected: list[str]
) -> None:
    """A policy is "applied to the targeted backend" (GEP-1619)."""
    policies = [
        ((KIND, "n", name), spec(*services, sessionPersistence=COOKIE))
        for name, services in targets.items()
    ]
    world = engine(*policies, rules=[SHARED_RULE])
    assert [one.origin.name if one is not None else "" for one in sessions(world)] == expected
    served = [key for key, _ in policies if key[2] in expected]
    assert [status(world, key) for key in served] == [[ACCEPTED]] * len(served)


def test_sessions_of_a_rule_precede_those_of_each_service() -> None:
    rule = {**SHARED_RULE, "sessionPersistence": {"cookie": {"name": "own"}}}
    world = engine((POLICY, spec(sessionPersistence=COOKIE)), rules=[rule])
    assert sessions(world) == [ir.Persistence("cookie", "own")] * 2


def test_oldest_policy_of_a_service_applies_as_a_whole() -> None:
    """A policy without merge strategy has the strategy None (GEP-713)."""
    other: Key = (KIND, "n", "o")
    world = engine((POLICY, spec(sessionPersistence=COOKIE)), (other, spec()))
    assert sessions(world) == [None]
    assert status(world, other) == [ACCEPTED]
    assert status(world) == [
        "Accepted False Conflicted spec: all fields: already set for Service s by "
        "XBackendTrafficPolicy n/o, which is older or first by name"
    ]
    world.commit({other: None})
    assert sessions(world) != [None]
    assert status(world) == [ACCEPTED]


def test_policy_of_another_namespace_has_no_effect() -> None:
    world = engine(((KIND, "m", "p"), spec(sessionPersistence=COOKIE)))
    assert sessions(world) == [None]
    assert status(world, (KIND, "m", "p")) == [
        "Accepted False TargetNotFound targetRef: Service m/s not found"
    ]


def test_policy_of_a_service_that_no_route_uses_has_no_status() -> None:
    assert entries(engine((POLICY, spec("t", sessionPersistence=COOKIE)))) == []


def test_status_is_about_the_gateway() -> None:
    (entry,) = entries(engine((POLICY, spec(sessionPersistence=COOKIE))))
    reference = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "n"}
    assert entry["ancestorRef"] == {**reference, "name": GATEWAY[2]}
    assert entry["controllerName"] == gateway_api.NGINX


@pytest.mark.parametrize(("others", "own"), [(0, 1), (15, 1), (16, 0)])
def test_status_has_at_most_sixteen_entries_of_all_controllers(others: int, own: int) -> None:
    """ "If this slice is full, implementations MUST NOT add further entries" (PolicyStatus)."""
    world = engine((POLICY, spec(sessionPersistence=COOKIE)))
    with world.compile() as ask:
        outcome = ask(gateway_api.gateway_api_status, POLICY)
    mesh = {"ancestorRef": {"name": "m"}, "controllerName": "example.com/m", "conditions": []}
    current = {"ancestors": [mesh] * others}
    merged = gateway_api.GATEWAY_API_FRONT_END.merge_status(current, outcome, "T") or current
    assert merged["ancestors"][:others] == [mesh] * others
    assert len(merged["ancestors"]) == others + own
