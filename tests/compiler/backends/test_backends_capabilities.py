"""Capabilities of an NGINX and its agent, from their reports."""

from __future__ import annotations

import pytest

from gatehouse.compiler.backends.nginx import NginxCapabilities, upstreams
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.settings import Balancing, UpstreamSettings
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.origin import Origin

PLUS = "nginx/1.29.3 (nginx-plus-r36-p1)"


def test_nginx_plus_release_is_parsed_from_version() -> None:
    assert NginxCapabilities.parse(PLUS).plus == 36
    assert NginxCapabilities.parse(PLUS).version == (1, 29, 3)
    assert NginxCapabilities.parse("nginx/1.31.3").plus == 0


@pytest.mark.parametrize(
    ("named", "actions", "directory"),
    [(True, False, "state"), (True, True, "state"), (False, True, "/var/lib/nginx/state")],
)
def test_state_files_are_used_when_agent_sets_servers_by_api(
    named: bool, actions: bool, directory: str
) -> None:
    known = NginxCapabilities.parse(PLUS, named_endpoints=named, api_actions=actions)
    assert (known.state_files, known.resolving_upstreams) == (directory, False)


def test_nginx_plus_has_servers_in_configuration_without_such_agent() -> None:
    assert NginxCapabilities.parse(PLUS).state_files == ""
    assert NginxCapabilities.parse("nginx/1.31.3", api_actions=True).state_files == ""


def test_common_capabilities_are_those_of_all_instances() -> None:
    ours = NginxCapabilities.parse(PLUS, named_endpoints=True, api_actions=True)
    other = NginxCapabilities.parse("1.29.3 (nginx-plus-r33)", api_actions=True)
    both = NginxCapabilities.common([ours, other])
    assert both is not None
    assert (both.plus, both.state_files) == (33, "/var/lib/nginx/state")
    mixed = NginxCapabilities.common(
        [ours, NginxCapabilities.parse("1.31.3", named_endpoints=True)]
    )
    assert mixed is not None
    assert (mixed.plus, mixed.state_files) == (0, "")


LEAST_TIME = Balancing("least-time", response="header")
FASTER_OF_TWO = Balancing("random", choice="least-time", response="header")


@pytest.mark.parametrize(
    ("version", "method", "missing"),
    [
        ("1.31.3", LEAST_TIME, ""),
        ("1.29.3", LEAST_TIME, "NGINX 1.31.0 or newer"),
        (PLUS, Balancing("least-time", response="whole", in_flight=True), ""),
        ("1.31.3", FASTER_OF_TWO, "NGINX Plus"),
        (PLUS, FASTER_OF_TWO, ""),
        ("1.22.1", Balancing("random", choice="least-connections"), ""),
    ],
)
def test_balancing_method_is_omitted_when_nginx_rejects_it(
    version: str, method: Balancing, missing: str
) -> None:
    capabilities = NginxCapabilities.parse(version)
    source = Origin("UpstreamSettingsPolicy", "ns", "p", "loadBalancingMethod")
    settings = UpstreamSettings(balancing=method, sources=(("balancing", source),))
    clusters = {"c": http.Cluster("c", (), settings=settings)}
    context = NginxRouteContext("scope", clusters, capabilities)
    route = http.Route("route", http.Match(), http.Forward((http.Backend("c"),)))
    unsupported = list(upstreams.unsupported_clusters(context, route))
    expected = [UnsupportedSetting(source, f"requires {missing}")] if missing else []
    assert unsupported == expected
    assert bool(upstreams.balancing(settings, capabilities)) == (not missing)


def test_nginx_plus_checks_tokens_itself() -> None:
    assert NginxCapabilities.parse(PLUS).jwt
    assert not NginxCapabilities.parse("1.25.1 (nginx-plus-r24)").jwt
    assert not NginxCapabilities.parse("1.31.3").jwt
