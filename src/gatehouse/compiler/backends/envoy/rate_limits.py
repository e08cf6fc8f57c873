"""Rate limits: token buckets for each value of a key, per Envoy and route, or shared by all."""

from __future__ import annotations

from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.extensions.filters.http.local_ratelimit.v3 import local_rate_limit_pb2
from envoy.type.v3 import http_status_pb2, token_bucket_pb2

from gatehouse.compiler.backends.envoy import client_headers, extensions, quoting, shared_limits
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


def rate_limit_filters(context: EnvoyRouteContext, route: Route) -> EnvoyPiece | None:
    """Return a filter for each supported limit, and the one that asks the rate limit service.

    Raises InvalidValueError.
    """
    rates = route.settings.rates
    if not rates.rules:
        return None
    supported = [limit for limit in rates.limits if _unsupported_attribute(limit) is None]
    filters = [_limit(rates, limit) for limit in supported]
    if rates.shared and context.counter:
        # The last one, because it waits. A request that an Envoy rejects itself is not sent to it.
        filters.append(_shared(context.counter, rates))
    return EnvoyPiece(filters=filters)


def unsupported_limits(context: EnvoyRouteContext, route: Route) -> list[UnsupportedSetting]:
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
    if not context.counter:
        why = "the controller has no --rate-limit-service"
        findings += [UnsupportedSetting(limit.origin, why) for limit in rates.shared]
    why = f"only {shared_limits.MAX_RULES} shared rules of a route are counted"
    more = rates.shared[shared_limits.MAX_RULES :] if context.counter else ()
    return findings + [UnsupportedSetting(limit.origin, why) for limit in more]


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
    proto.status.CopyFrom(_rejection(rates))
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


def _shared(counter: str, rates: ir.RateLimits) -> extension_pb2.TypedExtensionConfig:
    """Return the filter that asks the rate limit service once for all limits."""
    proto = shared_limits.shared_filter(counter)
    proto.rate_limited_status.CopyFrom(_rejection(rates))
    proto.filter_enabled.default_value.numerator = 100
    proto.filter_enforced.default_value.numerator = 0 if rates.dry_run else 100
    for limit in rates.shared[: shared_limits.MAX_RULES]:
        proto.rate_limits.extend(_descriptors(limit))
    return extensions.extension(shared_limits.SHARED_LIMIT_FILTER, proto)


def _descriptors(limit: ir.RateLimit) -> list[components.RateLimit]:
    """Return the descriptors of a limit, of which a request sends one at most."""
    policy, _, rule = limit.name.rpartition("/")
    rate, burst = str(limit.rate), str(limit.burst + 1)
    entries = {"cluster": policy, "schema": rule, "rate": rate, "per": limit.per, "burst": burst}
    attributes = [part for part in limit.key if isinstance(part, ir.Attribute)]
    proto = shared_limits.descriptor(entries)
    if not attributes:
        return [proto]
    # Without the attribute, there must be no descriptor. A descriptor without the entry would be
    # that of another bucket.
    key = shared_limits.KEY_ENTRY
    proto.actions.extend(_action(part, key, skip_if_absent=False) for part in attributes)
    if all(_is_client(part.name) for part in attributes):
        return [proto]
    return shared_limits.bounded(proto, entries)


def _rejection(rates: ir.RateLimits) -> http_status_pb2.HttpStatus:
    return http_status(rates.status if rates.status and _is_known_status(rates.status) else _STATUS)


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


def _action(
    part: str | ir.Attribute, key: str, *, skip_if_absent: bool = True
) -> components.RateLimit.Action:
    """Return the request attribute to count by; requests without it are not counted.

    ``skip_if_absent``: a descriptor without the entry stands for such requests.
    """
    if isinstance(part, str):
        constant = _Action.GenericKey(descriptor_key=key, descriptor_value=_CONSTANT)
        return _Action(generic_key=constant)
    if _is_client(part.name):
        return _Action(remote_address=_Action.RemoteAddress())
    if part.name.startswith("arg_"):
        name = part.name.removeprefix("arg_")
        query = _Action.QueryParameters(
            query_parameter_name=name, descriptor_key=key, skip_if_absent=skip_if_absent
        )
        return _Action(query_parameters=query)
    name = part.name.removeprefix("http_").replace("_", "-")
    header = _HEADERS.get(part.name) or client_headers.seen_name(name)
    return _Action(
        request_headers=_Action.RequestHeaders(
            header_name=header, descriptor_key=key, skip_if_absent=skip_if_absent
        )
    )
