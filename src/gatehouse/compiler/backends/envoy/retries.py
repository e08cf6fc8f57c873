"""Retries: those that a route asks for, and those that do no harm."""

from __future__ import annotations

from typing import Any

from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2

from gatehouse.compiler.backends.envoy import quoting
from gatehouse.compiler.backends.envoy.protobufs import number, packed
from gatehouse.compiler.ir import http as ir

_FAILURES = "connect-failure,refused-stream,reset"


def harmless() -> Any:
    """Try elsewhere what no backend has seen."""
    return elsewhere(
        components.RetryPolicy(retry_on="connect-failure,refused-stream", num_retries=number(2))
    )


def policy(wanted: ir.Retry | None, attempt: float) -> Any:
    """Give a route's own policy; None for the common one. ``attempt``: seconds for each."""
    if wanted is None:
        return None
    made = components.RetryPolicy(retry_on=_FAILURES, num_retries=number(wanted.attempts))
    if wanted.codes:
        made.retry_on += ",retriable-status-codes"
        made.retriable_status_codes.extend(wanted.codes)
    if attempt:
        made.per_try_timeout.CopyFrom(quoting.seconds(attempt))
    # Envoy waits for a random part of the interval.
    pause = quoting.seconds(max(wanted.backoff, 0.001))
    made.retry_back_off.base_interval.CopyFrom(pause)
    made.retry_back_off.max_interval.CopyFrom(quoting.seconds(max(2 * wanted.backoff, 0.001)))
    return elsewhere(made)


def elsewhere(made: Any) -> Any:
    """Prefer endpoints that were not asked yet."""
    made.retry_host_predicate.add(
        name="envoy.retry_host_predicates.previous_hosts",
        typed_config=packed(previous_hosts_pb2.PreviousHostsPredicate()),
    )
    made.host_selection_retry_max_attempts = 3
    return made
