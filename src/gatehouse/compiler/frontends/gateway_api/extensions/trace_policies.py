"""Translation of ObservabilityPolicy to IR. No I/O.

A policy chooses which requests of its routes are traced. The parameters of the data plane choose
the collector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.apis import nginx_gateway as api
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import (
    FieldParser,
    ParsedPolicy,
    origin_of,
)
from gatehouse.compiler.frontends.gateway_api.extensions.trace_parameters import (
    parse_attributes,
    span_text,
)
from gatehouse.compiler.ir.tracing import Context, Tracing

_CONTEXTS: Mapping[Any, Context] = {
    None: "",
    "extract": "extract",
    "inject": "inject",
    "propagate": "propagate",
    "ignore": "ignore",
}
_STRATEGIES = ("ratio", "parent")


class TracePolicy(msgspec.Struct, frozen=True):
    """Settings of an ObservabilityPolicy. Two policies of a target conflict if both trace."""

    tracing: Tracing | None = None


def trace_policy(policy: api.ObservabilityPolicy, limits: ResourceLimits) -> ParsedPolicy:
    """Translate an ObservabilityPolicy."""
    parse, tracing = FieldParser(limits), policy.spec.tracing
    if tracing is None:
        return parse.result(TracePolicy())
    if tracing.strategy not in _STRATEGIES:
        parse.problems.append(f"spec.tracing.strategy: must be one of {', '.join(_STRATEGIES)}")
    percent = 100 if tracing.ratio is None else tracing.ratio
    if tracing.strategy == "parent" and tracing.ratio is not None:
        parse.problems.append("spec.tracing.ratio: may be set with strategy ratio only")
    if not 0 <= percent <= 100:
        parse.problems.append("spec.tracing.ratio: must be from 0 to 100")
    if tracing.context not in _CONTEXTS:
        contexts = ", ".join(filter(None, _CONTEXTS))
        parse.problems.append(f"spec.tracing.context: must be one of {contexts}")
    name = parse("tracing.spanName", _name, tracing.span_name) or ""
    attributes = parse_attributes(parse, "tracing.spanAttributes", tracing.span_attributes)
    settings = Tracing(
        percent=percent if tracing.strategy == "ratio" else 0,
        parent_percent=None if tracing.strategy == "ratio" else 100,
        context=_CONTEXTS.get(tracing.context, ""),
        span_name=name,
        attributes=attributes,
        origin=origin_of(policy),
    )
    return parse.result(TracePolicy(settings))


def _name(text: str | None) -> str:
    return "" if text is None else span_text(text)
