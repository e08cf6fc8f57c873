"""Ceilings that parameters set.

Who: the author of a Gateway, its parameters, policies and routes in one namespace. Through what:
``spec.resourceLimits`` of NginxProxies and GatewayParameters. What must hold: ceilings of the
GatewayClass's parameters, which the operator writes, override those of the option, for the Gateways
of this class only. Parameters of a Gateway lower them and never raise them. An invalid field, or
parameters that a proxy rejected, raise nothing, and the status names object and field.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.admission import REGISTRY, admitted_objects
from gatehouse.apis import resources
from gatehouse.apis.data_plane_parameters import ParametersSpec
from gatehouse.apis.resource_limits import (
    PARAMETER_LIMITS,
    RESOURCE_LIMITS,
    parse_limits,
)
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.frontends.gateway_api.extensions.policy_conflicts import policy_rejection
from gatehouse.compiler.frontends.gateway_api.inputs import (
    SETTINGS_KEY,
    RejectedObject,
    rejected_object_key,
)
from gatehouse.controller.compilation import Compilation
from gatehouse.incremental import query

KINDS = {"NginxProxy": "gateway.nginx.org/v1alpha2", "GatewayParameters": "gatehouse.dev/v1alpha1"}
GATEWAY_API = "gateway.networking.k8s.io"
RESOURCES = {"NginxProxy": "NGINX_PROXIES", "GatewayParameters": "GATEWAY_PARAMETERS"}
POLICY = ("RateLimitPolicy", "zones")


def manifest(version: str, kind: str, name: str, spec: Any, namespace: str = "ns") -> str:
    metadata = {"name": name} | ({"namespace": namespace} if kind != "GatewayClass" else {})
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


def parameters(kind: str, name: str, spec: Any, namespace: str = "ns") -> str:
    return manifest(KINDS[kind], kind, name, spec, namespace)


class World:
    """Gateways ``a`` and ``b`` of classes of the same name, with a policy for both."""

    def __init__(
        self,
        *texts: str,
        own: tuple[str, str] = ("", ""),
        option: str = "",
        overrides: bool = False,
    ) -> None:
        settings = gateway_api.ControllerSettings(
            bind="any", limits=parse_limits(option), workload_overrides=overrides
        )
        self.compilation = Compilation(settings)
        infrastructure = (
            {
                "parametersRef": {
                    "group": KINDS[own[0]].split("/")[0],
                    "kind": own[0],
                    "name": own[1],
                }
            }
            if own[0]
            else {}
        )
        for text in (
            *(self.gateway_class(name) for name in ("a", "b")),
            self.gateway("a", infrastructure),
            self.gateway("b", {}),
            self.policy("8m"),
            *texts,
        ):
            self.put(text)

    @staticmethod
    def gateway_class(name: str) -> str:
        # Both kinds of references, one of them to a missing object, which must not matter.
        kind = "NginxProxy" if name == "a" else "GatewayParameters"
        group = KINDS[kind].split("/")[0]
        reference = {"group": group, "kind": kind, "name": name, "namespace": "operator"}
        proxy = "nginx" if name == "a" else "envoy"
        spec = {"controllerName": f"gatehouse.dev/{proxy}", "parametersRef": reference}
        return manifest(f"{GATEWAY_API}/v1", "GatewayClass", name, spec)

    @staticmethod
    def gateway(name: str, infrastructure: Any, of_class: str = "") -> str:
        listeners = [{"name": "http", "port": 80, "protocol": "HTTP"}]
        spec = {
            "gatewayClassName": of_class or name,
            "listeners": listeners,
            "infrastructure": infrastructure,
        }
        return manifest(f"{GATEWAY_API}/v1", "Gateway", name, spec)

    @staticmethod
    def policy(size: str, name: str = "zones", gateways: tuple[str, ...] = ("a", "b")) -> str:
        rules = [{"key": "$binary_remote_addr", "rate": "1r/s", "zoneSize": size}]
        targets = [{"group": GATEWAY_API, "kind": "Gateway", "name": name} for name in gateways]
        spec = {"targetRefs": targets, "rateLimit": {"local": {"rules": rules}}}
        return manifest("gateway.nginx.org/v1alpha1", "RateLimitPolicy", name, spec)

    def put(self, text: str) -> None:
        for kind, raw in admitted_objects(text):
            metadata = raw["metadata"]
            self.compilation.put(kind, (metadata.get("namespace", ""), metadata["name"]), raw)
        self.result = self.compilation.run()

    def at(self, gateway: str) -> Any:
        """Return the condition Accepted of the policy at a Gateway."""
        status: Any = self.result.statuses[(POLICY[0], "ns", POLICY[1])]
        [conditions] = [
            {condition.type: condition for condition in entry.conditions}
            for entry in status.ancestors
            if entry.ancestor[2] == gateway
        ]
        return conditions["Accepted"]

    def accepted(self, kind: str, namespace: str, name: str) -> Any:
        """Return the condition Accepted of a Gateway or GatewayClass."""
        status: Any = self.result.statuses[(kind, namespace, name)]
        return next(entry for entry in status.conditions if entry.type == "Accepted")


@pytest.mark.parametrize(("name", "kind"), [("a", "NginxProxy"), ("b", "GatewayParameters")])
@pytest.mark.parametrize("option", ["", '{"zoneBytes": 64}', '{"zoneBytes": 16777216}'])
def test_ceiling_of_a_class_overrides_the_option_for_its_gateways_only(
    name: str, kind: str, option: str
) -> None:
    other = "b" if name == "a" else "a"
    for limit, is_served in ((8 << 20, True), ((8 << 20) - 1, False)):
        spec = {"resourceLimits": {"zoneBytes": limit}}
        world = World(parameters(kind, name, spec, "operator"), option=option)
        assert world.at(name).status == str(is_served)
        if not is_served:
            assert world.at(name).message == (
                f"spec.rateLimit.local.rules[0].zoneSize: 8m is more than the limit of {limit} "
                f"bytes (zoneBytes, spec.resourceLimits of {kind} operator/{name})"
            )
        assert world.at(other).status == str("64}" not in option)


def test_claims_of_a_namespace_are_added_up_by_class() -> None:
    spec = {"resourceLimits": {"zoneBytesPerNamespace": 12 << 20}}
    world = World(parameters("NginxProxy", "a", spec, "operator"))
    world.put(World.policy("8m", "a-first-by-name"))
    assert (world.at("a").status, world.at("b").status) == ("False", "True")
    assert "in addition to 8388608 of older policies in namespace ns" in world.at("a").message
    assert world.at("a").message.endswith("spec.resourceLimits of NginxProxy operator/a)")


def test_ceiling_of_a_class_holds_for_regular_expressions_of_routes() -> None:
    matches = [{"path": {"type": "RegularExpression", "value": f"/{n}.*"}} for n in range(3)]
    rules = [{"matches": matches, "backendRefs": [{"name": "web", "port": 80}]}]
    parents = [{"name": name} for name in ("a", "b")]
    world = World(
        parameters("NginxProxy", "a", {"resourceLimits": {"regularExpressions": 2}}, "operator"),
        manifest("v1", "Service", "web", {"ports": [{"port": 80}]}),
        manifest(f"{GATEWAY_API}/v1", "HTTPRoute", "r", {"parentRefs": parents, "rules": rules}),
    )
    status: Any = world.result.statuses[("HTTPRoute", "ns", "r")]
    statuses = {
        parent.parent.name: {entry.type: entry for entry in parent.conditions}["Accepted"]
        for parent in status.parents
    }
    assert (statuses["a"].status, statuses["b"].status) == ("False", "True")
    assert "3 is more than the limit of 2 (regularExpressions, " in statuses["a"].message


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_of_a_gateway_lower_a_ceiling(kind: str) -> None:
    world = World(
        parameters(kind, "own", {"resourceLimits": {"zoneBytes": 1 << 20}}), own=(kind, "own")
    )
    assert (world.at("a").status, world.at("b").status) == ("False", "True")
    assert f"limit of 1048576 bytes (zoneBytes, spec.resourceLimits of {kind} ns/own)" in (
        world.at("a").message
    )
    assert world.accepted("Gateway", "ns", "a").status == "True"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("overrides", [True, False])
def test_parameters_of_a_gateway_never_raise_a_ceiling(
    kind: str, outer: bool, overrides: bool
) -> None:
    limit = (4 << 20) if outer else RESOURCE_LIMITS["zoneBytes"].default
    texts = [parameters(kind, "own", {"resourceLimits": {"zoneBytes": limit + 1, "replicas": 1}})]
    spec = {"resourceLimits": {"zoneBytes": limit}}
    texts += [parameters("NginxProxy", "a", spec, "operator")] if outer else []
    world = World(*texts, own=(kind, "own"), overrides=overrides)
    source = "spec.resourceLimits of NginxProxy operator/a" if outer else "default of --resource-li"
    accepted = world.accepted("Gateway", "ns", "a")
    assert (accepted.status, accepted.reason) == ("False", "InvalidParameters")
    assert (
        f"spec.infrastructure.parametersRef: {kind} ns/own: spec.resourceLimits.zoneBytes: "
        f"{limit + 1} is more than the limit of {limit} bytes (zoneBytes, {source}"
    ) in accepted.message
    assert "the field is ignored" in accepted.message
    assert world.at("a").status == str(not outer)
    world.put(World.policy("33m"))
    assert world.at("a").status == "False"


INVALID = [
    ({"zones": 1}, "spec.resourceLimits.zones: must be one of keepAliveConnections, "),
    ({"zoneBytes": -1}, "spec.resourceLimits.zoneBytes: must not be negative"),
    ({"zoneBytes": "1m"}, "spec.resourceLimits.zoneBytes: '1m' must be an integer"),
    ({"zoneBytes": True}, "spec.resourceLimits.zoneBytes: True must be an integer"),
    ({"zoneBytes": 1.5}, "spec.resourceLimits.zoneBytes: 1.5 must be an integer"),
]


@pytest.mark.parametrize(("limits", "message"), INVALID)
def test_invalid_ceiling_names_object_and_field(limits: dict[str, Any], message: str) -> None:
    """The CRD refuses these values. A cluster can have CRDs of another version."""
    world = World(own=("NginxProxy", "own"))
    # Another ceiling of the same object is valid.
    spec = {"resourceLimits": limits | {"wholeBodyBytes": 1, "zoneBytesPerNamespace": 1}}
    for namespace, name in (("ns", "own"), ("operator", "a")):
        raw = {
            "apiVersion": KINDS["NginxProxy"],
            "kind": "NginxProxy",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
        world.compilation.put("NginxProxy", (namespace, name), raw)
    world.result = world.compilation.run()
    of_class = world.accepted("GatewayClass", "", "a")
    assert (of_class.status, of_class.reason) == ("False", "InvalidParameters")
    assert f"NginxProxy operator/a: {message}" in of_class.message
    own = world.accepted("Gateway", "ns", "a")
    assert f"NginxProxy ns/own: {message}" in own.message
    assert "1 bytes (zoneBytesPerNamespace, spec.resourceLimits of" in world.at("a").message
    assert world.at("b").status == "True"


@pytest.mark.parametrize("limits", [limits for limits, _ in INVALID])
@pytest.mark.parametrize("kind", KINDS)
def test_api_server_refuses_or_prunes_an_invalid_ceiling(kind: str, limits: dict[str, Any]) -> None:
    compiled = REGISTRY.of(getattr(resources, RESOURCES[kind])).compiled
    raw = json.loads(parameters(kind, "p", {"resourceLimits": limits}))
    pruned = compiled.prepare(raw)
    problems = [cause.field for cause in compiled.validate(raw, None)]
    [name] = limits
    # "<nil>" says that rules of CEL were not evaluated.
    assert [*pruned, *(field for field in problems if field != "<nil>")] == [
        f"spec.resourceLimits.{name}"
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_ceiling_is_a_field_of_the_parameters(kind: str) -> None:
    limits = {name: number for number, name in enumerate(PARAMETER_LIMITS)}
    [(_, raw)] = admitted_objects(parameters(kind, "p", {"resourceLimits": limits}))
    assert raw["spec"]["resourceLimits"] == limits


@pytest.mark.parametrize(
    ("spec", "where"), [({"serverTokens": "build"}, "operator"), ({"zoneSize": "300m"}, "operator")]
)
def test_ceilings_hold_although_another_field_of_the_parameters_is_invalid(
    spec: dict[str, Any], where: str
) -> None:
    spec_fields = spec | {"resourceLimits": {"zoneBytes": 1 << 20}}
    world = World(parameters("NginxProxy", "a", spec_fields, where))
    assert world.accepted("GatewayClass", "", "a").status == "False"
    assert (world.at("a").status, world.at("b").status) == ("False", "True")


def test_ceilings_hold_although_the_proxy_rejects_the_parameters() -> None:
    """An agent could report that its proxy rejects the parameters of the class."""
    spec_fields = {"resourceLimits": {"zoneBytes": 1 << 20}}
    world = World(parameters("NginxProxy", "a", spec_fields, "operator"))
    gateway, key = ("Gateway", "ns", "a"), ("NginxProxy", "operator", "a")
    rejected = RejectedObject(
        key, ParametersSpec(resource_limits=spec_fields["resourceLimits"]), "no"
    )
    world.compilation.put_input(rejected_object_key(gateway, key), rejected)
    world.result = world.compilation.run()
    assert "GatewayClass a: spec.parametersRef: NginxProxy operator/a: no" in (
        world.accepted("Gateway", "ns", "a").message
    )
    assert world.at("a").status == "False"


@pytest.mark.parametrize("number", [3, 30])
def test_change_of_a_ceiling_compiles_only_gateways_of_the_class(number: int) -> None:
    """Each Gateway has a policy of its own. Those of class ``b`` are many."""
    engine = query.Engine(query.Snapshot(combined.INDEXES))
    engine.commit({SETTINGS_KEY: gateway_api.ControllerSettings(bind="any")})
    places = [(("Gateway", "ns", name), ("RateLimitPolicy", "ns", name)) for name in
              ("a", *(f"b{index}" for index in range(number)))]  # fmt: skip

    def commit(text: str) -> None:
        for kind, raw in admitted_objects(text):
            metadata = raw["metadata"]
            key = (kind, metadata.get("namespace", ""), metadata["name"])
            engine.commit({key: combined.decode_object(kind, raw)})

    def run() -> tuple[int, list[bool]]:
        before = engine.runs
        with engine.compile() as ask:
            accepted = [ask(policy_rejection, *place) is None for place in places]
        return engine.runs - before, accepted

    for name in ("a", "b"):
        commit(World.gateway_class(name))
    for gateway, _ in places:
        commit(World.gateway(gateway[2], {}, gateway[2][0]))
        commit(World.policy("8m", gateway[2], (gateway[2],)))
    commit(parameters("NginxProxy", "a", {"resourceLimits": {"zoneBytes": 9 << 20}}, "operator"))
    assert run()[1] == [True] * (number + 1)
    commit(parameters("NginxProxy", "a", {"resourceLimits": {"zoneBytes": 7 << 20}}, "operator"))
    runs, accepted = run()
    assert accepted == [False] + [True] * number
    # The parameters of the class, the ceilings of its Gateway, the sum there, and of the policy:
    # its parsing, claims and finding.
    assert runs == 6
