"""Local rate limits: a token bucket for each value of a key, per Envoy and route."""

from __future__ import annotations

from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.extensions.filters.http.local_ratelimit.v3 import local_rate_limit_pb2
from envoy.type.v3 import http_status_pb2, token_bucket_pb2

from gatehouse.compiler.backends.envoy import client_headers, extensions, quoting
from gatehouse.compiler.backends.envoy.protobufs import http_status, truth, wrap_number
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

_FILTER = "envoy.filters.http.local_ratelimit"

_Action = components.RateLimit.Action
_BYTES = 128
"""Memory that NGINX uses for one value of a key."""
_MAX_DESCRIPTORS = 100_000
_STATUS = 503
_UNLIMITED = 2**32 - 1
_CONSTANT = "-"
"""Value of each constant part of a key. Envoy would expand ``%`` in the text of the object."""

_HEADERS = {
    "request_uri": ":path",
    "uri": ":path",
    "host": ":authority",
    "request_method": ":method",
}


def rate_limit_filters(_context: EnvoyRouteContext, route: Route) -> EnvoyPiece | None:
    """Return a filter for each supported limit. Raises InvalidValueError."""
    rates = route.settings.rates
    if not rates.limits:
        return None
    supported = [limit for limit in rates.limits if _unsupported_attribute(limit) is None]
    return EnvoyPiece(filters=[_limit(rates, limit) for limit in supported])


def unsupported_limits(_context: EnvoyRouteContext, route: Route) -> list[UnsupportedSetting]:
    """Return the settings of the limits that Envoy does not support."""
    rates, findings = route.settings.rates, []
    for field in rates.nginx.log_level_fields:
        why = "Envoy does not log rejected requests at a level of their own"
        findings.append(UnsupportedSetting(field, why))
    for limit in rates.limits:
        attribute = _unsupported_attribute(limit)
        if attribute is not None:
            why = f"Envoy cannot limit by ${attribute}"
            findings.append(UnsupportedSetting(limit.origin.field("key"), why))
        elif limit.burst and limit.delay is not None:
            why = "Envoy does not delay a burst"
            findings.append(UnsupportedSetting(limit.origin.field("delay"), why))
        if not _is_known_status(rates.status):
            why = f"Envoy has no status code {rates.status}, and answers {_STATUS}"
            findings.append(UnsupportedSetting(limit.origin.field("rejectCode"), why))
    return findings


def _is_known_status(code: int | None) -> bool:
    return code is None or code in http_status_pb2.StatusCode.values()


def _limit(rates: ir.RateLimits, limit: ir.RateLimit) -> extension_pb2.TypedExtensionConfig:
    interval = {"second": 1.0, "minute": 60.0}[limit.per]
    bucket = _bucket(limit.burst + 1, limit.rate, interval)
    proto = local_rate_limit_pb2.LocalRateLimit(
        stat_prefix="rates",
        token_bucket=_bucket(_UNLIMITED, _UNLIMITED, 1.0),
        always_consume_default_token_bucket=truth(False),
        max_dynamic_descriptors=wrap_number(max(1, min(_MAX_DESCRIPTORS, limit.memory // _BYTES))),
    )
    status = rates.status if rates.status and _is_known_status(rates.status) else _STATUS
    proto.status.CopyFrom(http_status(status))
    proto.filter_enabled.default_value.numerator = 100
    proto.filter_enforced.default_value.numerator = 0 if rates.dry_run else 100
    actions, entries = [], []
    for index, part in enumerate(limit.key or ("",)):
        key = f"{index}"
        actions.append(_action(part, key))
        entry = ratelimit_pb2.RateLimitDescriptor.Entry(key=_name(part, key))
        if isinstance(part, str):
            entry.value = _CONSTANT
        entries.append(entry)
    proto.rate_limits.add(actions=actions)
    proto.descriptors.add(entries=entries, token_bucket=bucket)
    return extensions.extension(_FILTER, proto)


def _bucket(burst: int, rate: int, seconds: float) -> token_bucket_pb2.TokenBucket:
    return token_bucket_pb2.TokenBucket(
        max_tokens=burst,
        tokens_per_fill=wrap_number(rate),
        fill_interval=quoting.duration_of(seconds),
    )


def _unsupported_attribute(limit: ir.RateLimit) -> str | None:
    """Return the first attribute that Envoy does not support; None if it supports all."""
    attributes = [part.name for part in limit.key if isinstance(part, ir.Attribute)]
    return next((name for name in attributes if not _is_supported(name)), None)


def _is_supported(name: str) -> bool:
    return _is_client(name) or name in _HEADERS or name.startswith(("http_", "arg_"))


def _is_client(name: str) -> bool:
    return name in ("remote_addr", "binary_remote_addr")


def _name(part: str | ir.Attribute, key: str) -> str:
    return "remote_address" if isinstance(part, ir.Attribute) and _is_client(part.name) else key


def _action(part: str | ir.Attribute, key: str) -> components.RateLimit.Action:
    """Return the request attribute to count by; requests without it are not counted."""
    if isinstance(part, str):
        constant = _Action.GenericKey(descriptor_key=key, descriptor_value=_CONSTANT)
        return _Action(generic_key=constant)
    if _is_client(part.name):
        return _Action(remote_address=_Action.RemoteAddress())
    if part.name.startswith("arg_"):
        name = part.name.removeprefix("arg_")
        query = _Action.QueryParameters(
            query_parameter_name=name, descriptor_key=key, skip_if_absent=True
        )
        return _Action(query_parameters=query)
    name = part.name.removeprefix("http_").replace("_", "-")
    header = _HEADERS.get(part.name) or client_headers.seen_name(name)
    return _Action(
        request_headers=_Action.RequestHeaders(
            header_name=header, descriptor_key=key, skip_if_absent=True
        )
    )
