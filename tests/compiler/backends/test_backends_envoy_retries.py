"""Retries of requests whose endpoint refuses connections, while another endpoint works."""

from __future__ import annotations

import pytest
from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.compiler.backends.envoy import retries
from gatehouse.compiler.ir import http as ir

SELECTED_AGAIN = 3 / 4
"""Probability that the least busy of two random endpoints is one of two: both are that one, or one
is, and it has fewer requests."""


@pytest.mark.parametrize(
    "policy",
    [
        retries.safe_policy(),
        retries.retry_policy(ir.Retry(1, ()), 0),
        retries.elsewhere(components.RetryPolicy()),
    ],
    ids=["default", "route", "others"],
)
def test_retry_leaves_an_endpoint_that_refuses_connections(
    policy: components.RetryPolicy,
) -> None:
    selections = 1 + policy.host_selection_retry_max_attempts
    assert SELECTED_AGAIN**selections < 1e-4
