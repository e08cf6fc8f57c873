"""Retries: the policy of a route, and the default for failures that are safe to retry.

Policies repeat requests that no backend has received, or to which a backend has answered with a
code. A header adds lost connections and timeouts of attempts for requests with idempotent methods.
"""

from __future__ import annotations

import math

from envoy.config.cluster.v3 import circuit_breaker_pb2
from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2

from gatehouse.compiler.backends.envoy import extensions, filter_matchers, headers, quoting
from gatehouse.compiler.backends.envoy.protobufs import packed, wrap_number
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import RetryBudget, UpstreamSettings
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

RETRY_HEADER = "x-gh-retry-on"
"""Failures after which the router repeats the request, besides those of the route's policy."""

_UNSENT = "connect-failure,refused-stream"
_FAILURES = f"{_UNSENT},reset-before-request"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

_OTHER_SELECTIONS = 32
"""Number of times that a retry selects again while it meets an endpoint that was tried. An endpoint
that refuses connections has the fewest requests, and is the choice of three in four selections
beside one that works."""


def safe_policy() -> components.RetryPolicy:
    """Return the default policy: retry requests that no backend has received."""
    return elsewhere(components.RetryPolicy(retry_on=_UNSENT, num_retries=wrap_number(2)))


def retry_policy(retry: ir.Retry | None, attempt: float) -> components.RetryPolicy | None:
    """Return a route's own policy; None for the default. ``attempt``: timeout of each in
    seconds."""
    if retry is None:
        return None
    proto = components.RetryPolicy(retry_on=_FAILURES, num_retries=wrap_number(retry.attempts))
    if retry.codes:
        proto.retry_on += ",retriable-status-codes"
        proto.retriable_status_codes.extend(retry.codes)
    if attempt:
        proto.per_try_timeout.CopyFrom(quoting.duration_of(attempt))
    # Envoy waits for a random part of the interval.
    pause = quoting.duration_of(max(retry.backoff, 0.001))
    proto.retry_back_off.base_interval.CopyFrom(pause)
    proto.retry_back_off.max_interval.CopyFrom(quoting.duration_of(max(2 * retry.backoff, 0.001)))
    return elsewhere(proto)


def set_budget(
    thresholds: circuit_breaker_pb2.CircuitBreakers.Thresholds, budget: RetryBudget | None
) -> None:
    """Limit the retries to a cluster, if it has a budget.

    Envoy limits retries that are in progress at the same time. The number is that of the rate if
    each lasts a second.
    """
    if budget is not None:
        thresholds.retry_budget.budget_percent.value = budget.percent
        concurrency = max(1, math.ceil(budget.min_per_second))
        thresholds.retry_budget.min_retry_concurrency.CopyFrom(wrap_number(concurrency))


def repeated_requests(_context: EnvoyRouteContext, route: ir.Route) -> EnvoyPiece | None:
    """Return the filter that has the router repeat idempotent requests of a route."""
    if not isinstance(route.action, ir.Forward) or route.action.retry is None:
        return None
    return EnvoyPiece(idempotent=[repeating()])


def unsupported_budget_interval(settings: UpstreamSettings) -> list[UnsupportedSetting]:
    """Return the settings of a budget that Envoy does not support."""
    if settings.retry_budget is None:
        return []
    field = settings.source("retry_budget").field("budget.interval")
    return [UnsupportedSetting(field, "Envoy counts requests in progress, whatever the interval")]


def repeat_safe_requests() -> extension_matcher_pb2.ExtensionWithMatcher:
    """Return the filter in every chain that has safe requests sent again after a lost connection.

    A backend that closes an idle connection may do so while a request is on its way (RFC 9110,
    9.2.2).
    """
    return filter_matchers.run_for_methods(_SAFE_METHODS, repeating())


def repeating() -> extension_pb2.TypedExtensionConfig:
    """Return the filter that has the router repeat a request after each of these failures."""
    option = headers.option(RETRY_HEADER, "reset")
    mutation = mutation_rules_pb2.HeaderMutation(append=option)
    return extensions.extension("gh.retry", extensions.request_mutations([mutation]))


def elsewhere(proto: components.RetryPolicy) -> components.RetryPolicy:
    """Prefer endpoints that were not tried yet."""
    proto.retry_host_predicate.add(
        name="envoy.retry_host_predicates.previous_hosts",
        typed_config=packed(previous_hosts_pb2.PreviousHostsPredicate()),
    )
    proto.host_selection_retry_max_attempts = _OTHER_SELECTIONS
    return proto
