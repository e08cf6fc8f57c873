"""Shared limits of routes: the rate limit service is asked after local limits, before checks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.ratelimit.v3 import rate_limit_pb2
from google.protobuf.message import Message

from fakes.envoy_serving import host, plain, route_to
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.backends.envoy import rate_limits, route_filters, shared_limits
from gatehouse.compiler.backends.envoy.capabilities import EnvoyCapabilities
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.backends.envoy.route_context import EnvoyRouteContext
from gatehouse.compiler.backends.route_features import Phase
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import Attribute, RateLimit, RateLimits, Settings
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, LISTENER_TYPE_URL

COUNTER = "limits.example:8081"
POLICY = Origin("TrafficPolicy", "ns", "p")


def rule(number: int = 0, *key: Attribute, burst: int = 0) -> RateLimit:
    origin = POLICY.field(f"rateLimit.shared.rules[{number}]")
    name = f"TrafficPolicy/ns/p/{number}"
    return RateLimit(name, key or ("all",), 10, "minute", 0, burst, None, origin)


def limited(*shared: RateLimit, **rates: Any) -> ir.Route:
    return route_to("c", settings=Settings(rates=RateLimits(shared=shared, **rates)))


def context(counter: str = COUNTER) -> EnvoyRouteContext:
    return EnvoyRouteContext({}, {}, EnvoyCapabilities(), counter=counter)


def service_filter(route: ir.Route) -> rate_limit_pb2.RateLimit:
    piece = rate_limits.rate_limit_filters(context(), route)
    assert piece is not None
    proto = rate_limit_pb2.RateLimit()
    assert piece.filters[-1].typed_config.Unpack(proto)
    return proto


def constants(limit: Any) -> dict[str, str]:
    """Return the constant entries of a descriptor."""
    actions = (one.generic_key for one in limit.actions if one.HasField("generic_key"))
    return {one.descriptor_key: one.descriptor_value for one in actions}


def test_descriptor_names_policy_rule_and_limit() -> None:
    [descriptor] = service_filter(limited(rule(3, burst=5))).rate_limits
    assert constants(descriptor) == {
        "cluster": "TrafficPolicy/ns/p", "schema": "3", "rate": "10", "per": "minute", "burst": "6",
    }  # fmt: skip
    assert len(descriptor.actions) == 5


def test_client_address_is_sent_with_all_requests_and_a_header_with_short_ones_only() -> None:
    address, user = Attribute("binary_remote_addr"), Attribute("http_x_user")
    proto = service_filter(limited(rule(0, address), rule(1, user)))
    kinds = [[action.WhichOneof("action_specifier") for action in d.actions[5:]]
             for d in proto.rate_limits]  # fmt: skip
    assert kinds == [["remote_address"], ["request_headers", "extension"], ["extension"]]
    assert not proto.rate_limits[1].actions[5].request_headers.skip_if_absent


@pytest.mark.parametrize(
    ("rates", "status", "enforced"),
    [({}, 503, 100), ({"status": 429}, 429, 100), ({"dry_run": True}, 503, 0)],
)
def test_service_decides_about_status_and_dry_run_of_the_policy(
    rates: dict[str, Any], status: int, enforced: int
) -> None:
    proto = service_filter(limited(rule(), **rates))
    assert proto.rate_limited_status.code == status
    assert proto.filter_enforced.default_value.numerator == enforced
    assert not proto.failure_mode_deny


def test_rules_are_reported_without_a_service_and_beyond_the_limit_of_a_route() -> None:
    rules = [rule(number) for number in range(shared_limits.MAX_RULES + 1)]
    [beyond] = rate_limits.unsupported_limits(context(), limited(*rules))
    assert (beyond.setting, "only 16" in beyond.reason) == (rules[-1].origin, True)
    assert len(service_filter(limited(*rules)).rate_limits) == shared_limits.MAX_RULES
    [without] = rate_limits.unsupported_limits(context(""), limited(rule()))
    assert (without.setting, "--rate-limit-service" in without.reason) == (rule().origin, True)
    piece = rate_limits.rate_limit_filters(context(""), limited(rule()))
    assert piece is not None
    assert not piece.filters


def test_service_is_asked_in_a_place_of_its_own_before_an_authorization_server() -> None:
    """Envoy skips the filters after one that waits."""
    local = RateLimit("n", ("all",), 1, "second", 1 << 20)
    limits = rate_limits.rate_limit_filters(context(), limited(rule(), limits=(local,)))
    assert limits is not None
    assert [one.name.rpartition(".")[2] for one in limits.filters] == [
        "local_ratelimit",
        "ratelimit",
    ]
    waiting = msgspec.structs.replace(limits, filters=[_named("envoy.filters.http.ext_authz")])
    route = components.Route()
    route_filters.place_filters(
        route, [(Phase.LIMITS, limits), (Phase.AUTHORIZATION, waiting), (Phase.REQUEST, limits)]
    )
    assert {*route.typed_per_filter_config} == {
        route_filters.LIMITS_FILTER,
        route_filters.AUTHORIZATION_FILTER,
        route_filters.GUARD_FILTER,
    }


def _named(name: str, config: Message | None = None) -> Any:
    config = config or rate_limit_pb2.RateLimit()
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=packed(config))


@pytest.mark.parametrize("counter", ["", COUNTER])
def test_listeners_have_the_place_and_the_cluster_only_with_a_service(counter: str) -> None:
    gateway = plain([host("a.example", limited(rule()))], [ir.Cluster("c", ())])
    generated = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(
        msgspec.structs.replace(gateway, counter=counter)
    )
    [listener] = generated.resources.by_type[LISTENER_TYPE_URL].values()
    clusters = generated.resources.by_type[CLUSTER_TYPE_URL]
    place = route_filters.LIMITS_FILTER.encode()
    authorization = route_filters.AUTHORIZATION_FILTER.encode()
    assert (place in listener.body) == bool(counter)
    assert listener.body.find(place) < listener.body.find(authorization)
    assert (f"counter:{COUNTER}" in clusters) == bool(counter)
