"""Rate limits: a bucket of tokens for each value of a key, in this Envoy and for this route."""

from __future__ import annotations

from typing import Any

from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.extensions.filters.http.local_ratelimit.v3 import local_rate_limit_pb2
from envoy.type.v3 import token_bucket_pb2

from gatehouse.compiler.backends.envoy import quoting
from gatehouse.compiler.backends.envoy.protobufs import number, packed, truth
from gatehouse.compiler.backends.envoy.unsupported import left_out
from gatehouse.compiler.ir import settings as ir

FILTER = "envoy.filters.http.local_ratelimit"

_Action = components.RateLimit.Action
_BYTES = 128
"""What NGINX takes for one value of a key."""
_MOST = 100_000
_STATUS = 503
_ENOUGH = 2**32 - 1

_HEADERS = {
    "request_uri": ":path",
    "uri": ":path",
    "host": ":authority",
    "request_method": ":method",
}


def limits(wanted: ir.RateLimits) -> list[Any]:
    """Give a filter for each limit that can be kept. Raises InvalidValueError."""
    return [_limit(wanted, limit) for limit in wanted.limits if _unknown(limit) is None]


def unsupported(wanted: ir.RateLimits) -> list[str]:
    """Say what of the limits Envoy leaves out."""
    found = []
    for limit in wanted.limits:
        policy, _, index = limit.name.rpartition("/")
        place = f"rateLimit.local.rules[{index}]"
        unknown = _unknown(limit)
        if unknown is not None:
            why = f"Envoy cannot count by ${unknown}"
            found.append(left_out("RateLimitPolicy", [policy], f"{place}.key", why))
        elif limit.burst and limit.delay is not None:
            why = "Envoy lets a burst pass at once"
            found.append(left_out("RateLimitPolicy", [policy], f"{place}.delay", why))
    return found


def _limit(wanted: ir.RateLimits, limit: ir.RateLimit) -> Any:
    every = {"second": 1.0, "minute": 60.0}[limit.per]
    bucket = _bucket(limit.burst + 1, limit.rate, every)
    made = local_rate_limit_pb2.LocalRateLimit(
        stat_prefix="rates",
        token_bucket=_bucket(_ENOUGH, _ENOUGH, 1.0),
        always_consume_default_token_bucket=truth(False),
        max_dynamic_descriptors=number(max(1, min(_MOST, limit.memory // _BYTES))),
    )
    made.status.code = wanted.status if wanted.status is not None else _STATUS
    made.filter_enabled.default_value.numerator = 100
    made.filter_enforced.default_value.numerator = 0 if wanted.dry_run else 100
    actions, entries = [], []
    for place, part in enumerate(limit.key or ("",)):
        key = f"{place}"
        actions.append(_action(part, key))
        entry = ratelimit_pb2.RateLimitDescriptor.Entry(key=_name(part, key))
        if isinstance(part, str):
            entry.value = quoting.text(part) or "-"
        entries.append(entry)
    made.rate_limits.add(actions=actions)
    made.descriptors.add(entries=entries, token_bucket=bucket)
    return extension_pb2.TypedExtensionConfig(name=FILTER, typed_config=packed(made))


def _bucket(most: int, rate: int, seconds: float) -> Any:
    return token_bucket_pb2.TokenBucket(
        max_tokens=most, tokens_per_fill=number(rate), fill_interval=quoting.seconds(seconds)
    )


def _unknown(limit: ir.RateLimit) -> str | None:
    """Give the first attribute that Envoy does not know; None if it knows all."""
    attributes = [part.name for part in limit.key if isinstance(part, ir.Attribute)]
    return next((name for name in attributes if not _known(name)), None)


def _known(name: str) -> bool:
    return _is_client(name) or name in _HEADERS or name.startswith(("http_", "arg_"))


def _is_client(name: str) -> bool:
    return name in ("remote_addr", "binary_remote_addr")


def _name(part: str | ir.Attribute, key: str) -> str:
    return "remote_address" if isinstance(part, ir.Attribute) and _is_client(part.name) else key


def _action(part: str | ir.Attribute, key: str) -> Any:
    """Give what of a request is counted by; a request without it is not counted."""
    if isinstance(part, str):
        value = quoting.text(part) or "-"
        return _Action(generic_key=_Action.GenericKey(descriptor_key=key, descriptor_value=value))
    if _is_client(part.name):
        return _Action(remote_address=_Action.RemoteAddress())
    if part.name.startswith("arg_"):
        name = part.name.removeprefix("arg_")
        query = _Action.QueryParameters(
            query_parameter_name=name, descriptor_key=key, skip_if_absent=True
        )
        return _Action(query_parameters=query)
    header = _HEADERS.get(part.name) or part.name.removeprefix("http_").replace("_", "-")
    return _Action(
        request_headers=_Action.RequestHeaders(
            header_name=header, descriptor_key=key, skip_if_absent=True
        )
    )
