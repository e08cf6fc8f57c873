"""Translation of ClientSettingsPolicy, ProxySettingsPolicy and RateLimitPolicy to IR. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from gatehouse.apis import nginx_gateway as api
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.settings import Sourced
from gatehouse.dataplane.origin import Origin

V = TypeVar("V")
A = TypeVar("A")

ZONE = 10 << 20
"""Default size in bytes of a rate limit's shared memory."""

MAX_ZONE_BYTES = 256 << 20
"""Maximum size in bytes of a shared memory zone, which each data plane reserves."""

_LEVELS: dict[str, Literal["info", "notice", "warn", "error"]] = {
    "info": "info",
    "notice": "notice",
    "warn": "warn",
    "error": "error",
}


class ParsedPolicy(msgspec.Struct, frozen=True):
    """Settings of a policy; None if it has problems."""

    settings: Any = None
    problems: tuple[str, ...] = ()


class FieldParser:
    """Parses fields and collects their problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def __call__(self, field: str, parse: Callable[[A], V], value: A) -> V | None:
        """Return ``parse(value)``. If the value is invalid, record a problem and return None."""
        try:
            return parse(value)
        except ValueProblem as problem:
            self.problems.append(f"spec.{field}: {problem}")
            return None

    def result(self, settings: object) -> ParsedPolicy:
        """Return the settings, or the problems if there are any."""
        return ParsedPolicy(None, tuple(self.problems)) if self.problems else ParsedPolicy(settings)


CLIENT_FIELDS = {
    "body_size": "body.maxSize",
    "body_buffer": "body.bufferSize",
    "body_timeout": "body.timeout",
    "requests": "keepAlive.requests",
    "lifetime": "keepAlive.time",
    "idle": "keepAlive.timeout.server",
    "keepalive_header_timeout": "keepAlive.timeout.header",
    "keepalive_min_timeout": "keepAlive.minTimeout",
}
"""Fields of the IR, and the fields of a ClientSettingsPolicy that set them."""

PROXY_FIELDS = {
    "buffering": "buffering.disable",
    "buffer_size": "buffering.bufferSize",
    "buffers": "buffering.buffers",
    "busy_buffers_size": "buffering.busyBuffersSize",
    "connect": "timeout.connect",
    "send": "timeout.send",
    "read": "timeout.read",
}
"""Fields of the IR, and the fields of a ProxySettingsPolicy that set them."""

S = TypeVar("S", bound=Sourced)


def with_sources(settings: S, origin: Origin, fields: Mapping[str, str]) -> S:
    """Return settings with the sources of their fields. ``fields``: paths by field of the IR."""
    sources = tuple(
        (name, origin.field(path))
        for name, path in fields.items()
        if getattr(settings, name) not in UNSET
    )
    return msgspec.structs.replace(settings, sources=sources)


UNSET = (None, "", ())
"""Values of fields that are not set."""


def client_settings(policy: api.ClientSettingsPolicy) -> ParsedPolicy:
    """Translate a ClientSettingsPolicy."""
    parse, body, keep_alive = FieldParser(), policy.spec.body, policy.spec.keep_alive
    size, time, paths = nginx_values.size, nginx_values.time, CLIENT_FIELDS
    timeout = keep_alive.timeout
    settings = ir.ClientSettings(
        body_size=parse(paths["body_size"], size, body.max_size),
        body_buffer=parse(paths["body_buffer"], size, body.buffer_size),
        body_timeout=parse(paths["body_timeout"], time, body.timeout),
        requests=keep_alive.requests,
        lifetime=parse(paths["lifetime"], time, keep_alive.time),
        idle=parse(paths["idle"], time, timeout.server),
        keepalive_header_timeout=parse(paths["keepalive_header_timeout"], time, timeout.header),
        keepalive_min_timeout=parse(paths["keepalive_min_timeout"], time, keep_alive.min_timeout),
    )
    if settings.keepalive_header_timeout is not None and settings.idle is None:
        parse.problems.append(
            "spec.keepAlive.timeout.header: keepAlive.timeout.server must be set, too"
        )
    return parse.result(with_sources(settings, origin_of(policy), CLIENT_FIELDS))


def proxy_settings(policy: api.ProxySettingsPolicy) -> ParsedPolicy:
    """Translate a ProxySettingsPolicy."""
    parse, buffering, timeouts = FieldParser(), policy.spec.buffering, policy.spec.timeout
    size, time, paths = nginx_values.size, nginx_values.time, PROXY_FIELDS
    buffers = None
    if buffering.buffers is not None:
        each = parse("buffering.buffers.size", size, buffering.buffers.size)
        buffers = ir.Buffers(buffering.buffers.number, each or 0)
        if each == 0:
            parse.problems.append("spec.buffering.buffers.size: must be greater than 0")
    found = ir.ProxySettings(
        buffering=None if buffering.disable is None else not buffering.disable,
        buffer_size=parse(paths["buffer_size"], size, buffering.buffer_size),
        buffers=buffers,
        busy_buffers_size=parse(paths["busy_buffers_size"], size, buffering.busy_buffers_size),
        connect=parse(paths["connect"], time, timeouts.connect),
        send=parse(paths["send"], time, timeouts.send),
        read=parse(paths["read"], time, timeouts.read),
    )
    parse.problems += _sizes(found)
    return parse.result(with_sources(found, origin_of(policy), PROXY_FIELDS))


def origin_of(policy: api.Policy) -> Origin:
    """Return the origin of a policy."""
    kind = type(policy).__name__
    return Origin(kind, policy.metadata.namespace, policy.metadata.name)


def _sizes(found: ir.ProxySettings) -> list[str]:
    """Return the problems of combinations of sizes that NGINX rejects."""
    problems = []
    if found.buffer_size == 0:
        problems.append("spec.buffering.bufferSize: must be greater than 0")
    place = "spec.buffering.busyBuffersSize"
    if (
        found.busy_buffers_size is not None
        and found.buffer_size is not None
        and found.busy_buffers_size < found.buffer_size
    ):
        problems.append(f"{place}: must not be less than bufferSize")
    if found.busy_buffers_size is not None and found.buffers is not None:
        if found.busy_buffers_size < found.buffers.size:
            problems.append(f"{place}: must not be less than buffers.size")
        if found.busy_buffers_size >= (found.buffers.number - 1) * found.buffers.size:
            problems.append(f"{place}: must be less than (buffers.number - 1) * buffers.size")
    return problems


def rate_limits(policy: api.RateLimitPolicy) -> ParsedPolicy:
    """Translate a RateLimitPolicy."""
    parse, spec = FieldParser(), policy.spec.rate_limit
    limits = []
    for index, rule in enumerate(spec.local.rules):
        place = f"rateLimit.local.rules[{index}]"
        key = parse(f"{place}.key", nginx_values.template, rule.key)
        rate = parse(f"{place}.rate", nginx_values.rate, rule.rate) or (1, "s")
        memory = parse(f"{place}.zoneSize", nginx_values.size, rule.zone_size)
        if memory is not None and memory > MAX_ZONE_BYTES:
            parse.problems.append(f"spec.{place}.zoneSize: must be at most 256m")
        if memory is not None and memory < 32 << 10:
            parse.problems.append(f"spec.{place}.zoneSize: must be at least 32k")
        for field, number in (("burst", rule.burst), ("delay", rule.delay)):
            if number is not None and number < 0:
                parse.problems.append(f"spec.{place}.{field}: must not be less than 0")
        limits.append(
            ir.RateLimit(
                name=f"{policy.metadata.namespace}/{policy.metadata.name}/{index}",
                origin=origin_of(policy).field(place),
                key=key or (),
                rate=rate[0],
                per="second" if rate[1] == "s" else "minute",
                memory=ZONE if memory is None else memory,
                burst=rule.burst or 0,
                delay=None if rule.no_delay else rule.delay or 0,
            )
        )
    answers: list[api.RateLimitAnswer] = [spec, *spec.local.rules]
    levels = [_LEVELS[each.log_level] for each in answers if each.log_level in _LEVELS]
    return parse.result(
        ir.RateLimits(
            tuple(limits),
            levels[0] if levels else "",
            next((each.reject_code for each in answers if each.reject_code is not None), None),
            next((each.dry_run for each in answers if each.dry_run is not None), None),
        )
    )
