"""Translation of ClientSettingsPolicy, ProxySettingsPolicy and RateLimitPolicy to IR. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

from gatehouse.apis import nginx_gateway as api
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.ir import settings as ir

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


def client_settings(policy: api.ClientSettingsPolicy) -> ParsedPolicy:
    """Translate a ClientSettingsPolicy."""
    parse, body, keep_alive = FieldParser(), policy.spec.body, policy.spec.keep_alive
    settings = ir.ClientSettings(
        body_size=parse("body.maxSize", nginx_values.size, body.max_size),
        body_buffer=parse("body.bufferSize", nginx_values.size, body.buffer_size),
        body_timeout=parse("body.timeout", nginx_values.time, body.timeout),
        requests=keep_alive.requests,
        lifetime=parse("keepAlive.time", nginx_values.time, keep_alive.time),
        idle=parse("keepAlive.timeout.server", nginx_values.time, keep_alive.timeout.server),
        keepalive_header_timeout=parse(
            "keepAlive.timeout.header", nginx_values.time, keep_alive.timeout.header
        ),
        keepalive_min_timeout=parse(
            "keepAlive.minTimeout", nginx_values.time, keep_alive.min_timeout
        ),
    )
    if settings.keepalive_header_timeout is not None and settings.idle is None:
        parse.problems.append(
            "spec.keepAlive.timeout.header: keepAlive.timeout.server must be set, too"
        )
    return parse.result(settings)


def proxy_settings(policy: api.ProxySettingsPolicy) -> ParsedPolicy:
    """Translate a ProxySettingsPolicy."""
    parse, buffering, timeouts = FieldParser(), policy.spec.buffering, policy.spec.timeout
    buffers = None
    if buffering.buffers is not None:
        size = parse("buffering.buffers.size", nginx_values.size, buffering.buffers.size)
        buffers = ir.Buffers(buffering.buffers.number, size or 0)
        if size == 0:
            parse.problems.append("spec.buffering.buffers.size: must be greater than 0")
    found = ir.ProxySettings(
        buffering=None if buffering.disable is None else not buffering.disable,
        buffer_size=parse("buffering.bufferSize", nginx_values.size, buffering.buffer_size),
        buffers=buffers,
        busy_buffers_size=parse(
            "buffering.busyBuffersSize", nginx_values.size, buffering.busy_buffers_size
        ),
        connect=parse("timeout.connect", nginx_values.time, timeouts.connect),
        send=parse("timeout.send", nginx_values.time, timeouts.send),
        read=parse("timeout.read", nginx_values.time, timeouts.read),
    )
    parse.problems += _sizes(found)
    return parse.result(found)


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
