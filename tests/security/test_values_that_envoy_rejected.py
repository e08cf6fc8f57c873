"""Tenants of a shared Envoy, through values that were admitted, and that Envoy rejected.

Each was found by :mod:`test_hostile_objects`. The value is a finding, and everything is served.
"""

from __future__ import annotations

import pytest
from envoy.extensions.filters.http.local_ratelimit.v3.local_rate_limit_pb2 import LocalRateLimit

from gatehouse.compiler.backends.envoy import EnvoyCapabilities
from gatehouse.compiler.backends.envoy.rate_limits import rate_limit_filters, unsupported_limits
from gatehouse.compiler.backends.envoy.route_context import EnvoyRouteContext
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import RateLimit, RateLimits, Settings
from gatehouse.dataplane.origin import Origin

POLICY = Origin("RateLimitPolicy", "n", "p", "rateLimit.local.rules[0]")


@pytest.mark.parametrize(("code", "known"), [(429, True), (503, True), (599, False), (418, False)])
def test_status_code_that_envoy_lacks_is_a_finding(code: int, known: bool) -> None:
    limit = RateLimit("n/p/0", ("k",), 1, "second", 1 << 20, origin=POLICY, burst=0, delay=None)
    rates = RateLimits((limit,), status=code)
    route = ir.Route("n/r/0/0", ir.Match(), ir.Respond(200), settings=Settings(rates=rates))
    context = EnvoyRouteContext({}, {}, EnvoyCapabilities())
    piece = rate_limit_filters(context, route)
    assert piece is not None
    (extension,) = piece.filters
    sent = LocalRateLimit.FromString(extension.typed_config.value).status.code
    assert sent == (code if known else 503)
    findings = unsupported_limits(context, route)
    assert [finding.setting.part for finding in findings] == (
        [] if known else ["rateLimit.local.rules[0].rejectCode"]
    )
