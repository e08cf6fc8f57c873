"""Translation of ClientSettingsPolicy, ProxySettingsPolicy and RateLimitPolicy to IR. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Literal, TypeVar

import msgspec

from gatehouse.apis import nginx_gateway as api
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.proxy_settings import (
    Buffers,
    EnvoyClientSettings,
    NginxClientSettings,
    NginxRateLimits,
    NginxResponseSettings,
    NginxUpstreamSettings,
)
from gatehouse.compiler.ir.settings import Sourced
from gatehouse.dataplane.origin import Origin

V = TypeVar("V")
A = TypeVar("A")

_ZONE = 10 << 20
"""Default size in bytes of a rate limit's shared memory."""

MAX_BURST = 1_000_000
"""Maximum number of requests above the rate. NGINX counts thousandths, Envoy tokens in 32 bits."""

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
    """Parses fields and collects their problems. ``limits``: ceilings of their values."""

    def __init__(self, limits: ResourceLimits) -> None:
        self.problems: list[str] = []
        self._limits = limits

    def limit(self, field: str, name: str, value: int | None, text: object = None) -> None:
        """Record a problem if a value is above its ceiling. ``text``: as its author wrote it."""
        if excess := self._limits.excess(name, value or 0, text):
            self.problems.append(f"spec.{field}: {excess}")

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
    "nginx.body_buffer": "body.bufferSize",
    "nginx.body_timeout": "body.timeout",
    "nginx.requests": "keepAlive.requests",
    "nginx.lifetime": "keepAlive.time",
    "nginx.idle": "keepAlive.timeout.server",
    "nginx.keepalive_header_timeout": "keepAlive.timeout.header",
    "nginx.keepalive_min_timeout": "keepAlive.minTimeout",
}
"""Paths of fields of the IR, and the fields of a ClientSettingsPolicy that set them."""

PROXY_FIELDS = {
    "nginx.buffering": "buffering.disable",
    "nginx.buffer_size": "buffering.bufferSize",
    "nginx.buffers": "buffering.buffers",
    "nginx.busy_buffers_size": "buffering.busyBuffersSize",
    "nginx.connect": "timeout.connect",
    "send": "timeout.send",
    "read": "timeout.read",
}
"""Paths of fields of the IR, and the fields of a ProxySettingsPolicy that set them."""

S = TypeVar("S", bound=Sourced)


def with_sources(settings: S, origin: Origin, fields: Mapping[str, str]) -> S:
    """Return settings with the sources of their fields.

    ``fields``: paths in the spec by path of the field of the IR.
    """
    sources = tuple(
        (name, origin.field(path))
        for name, path in fields.items()
        if attrgetter(name)(settings) not in UNSET
    )
    return msgspec.structs.replace(settings, sources=sources)


UNSET = (
    *(None, "", ()),
    *(NginxClientSettings(), EnvoyClientSettings(), NginxResponseSettings(), NginxRateLimits()),
    NginxUpstreamSettings(),
)
"""Values of fields that are not set."""


def client_settings(policy: api.ClientSettingsPolicy, limits: ResourceLimits) -> ParsedPolicy:
    """Translate a ClientSettingsPolicy."""
    parse, body, keep_alive = FieldParser(limits), policy.spec.body, policy.spec.keep_alive
    size, time, paths = nginx_values.size, nginx_values.parse_nginx_seconds, CLIENT_FIELDS
    timeout = keep_alive.timeout
    body_size = parse(paths["body_size"], size, body.max_size)
    whole_body = limits.of("wholeBodyBytes") if body.max_size is not None else None
    own = NginxClientSettings(
        body_buffer=parse(paths["nginx.body_buffer"], size, body.buffer_size),
        body_timeout=parse(paths["nginx.body_timeout"], time, body.timeout),
        requests=parse(paths["nginx.requests"], nginx_values.parse_count, keep_alive.requests),
        lifetime=parse(paths["nginx.lifetime"], time, keep_alive.time),
        idle=parse(paths["nginx.idle"], time, timeout.server),
        keepalive_header_timeout=parse(
            paths["nginx.keepalive_header_timeout"], time, timeout.header
        ),
        keepalive_min_timeout=parse(
            paths["nginx.keepalive_min_timeout"], time, keep_alive.min_timeout
        ),
    )
    settings = ir.ClientSettings(
        body_size=body_size, nginx=own, envoy=EnvoyClientSettings(whole_body=whole_body)
    )
    parse.limit(paths["nginx.body_buffer"], "bodyBufferBytes", own.body_buffer, body.buffer_size)
    if own.keepalive_header_timeout is not None and own.idle is None:
        parse.problems.append(
            "spec.keepAlive.timeout.header: keepAlive.timeout.server must be set, too"
        )
    return parse.result(with_sources(settings, origin_of(policy), CLIENT_FIELDS))


def proxy_settings(policy: api.ProxySettingsPolicy, limits: ResourceLimits) -> ParsedPolicy:
    """Translate a ProxySettingsPolicy."""
    parse, buffering, timeouts = FieldParser(limits), policy.spec.buffering, policy.spec.timeout
    size, time, paths = nginx_values.size, nginx_values.parse_nginx_seconds, PROXY_FIELDS
    buffers = None
    if buffering.buffers is not None:
        buffer_size = parse("buffering.buffers.size", size, buffering.buffers.size)
        buffers = Buffers(buffering.buffers.number, buffer_size or 0)
        if buffer_size == 0:
            parse.problems.append("spec.buffering.buffers.size: must be greater than 0")
        total = buffers.number * buffers.size
        product = f"{buffering.buffers.number} * {buffering.buffers.size}"
        parse.limit("buffering.buffers", "responseBufferBytes", total, product)
    own = NginxResponseSettings(
        buffering=None if buffering.disable is None else not buffering.disable,
        buffer_size=parse(paths["nginx.buffer_size"], size, buffering.buffer_size),
        buffers=buffers,
        busy_buffers_size=parse(
            paths["nginx.busy_buffers_size"], size, buffering.busy_buffers_size
        ),
        connect=parse(paths["nginx.connect"], time, timeouts.connect),
    )
    settings = ir.ProxySettings(
        send=parse(paths["send"], time, timeouts.send),
        read=parse(paths["read"], time, timeouts.read),
        nginx=own,
    )
    for path, value, text in (
        ("nginx.buffer_size", own.buffer_size, buffering.buffer_size),
        ("nginx.busy_buffers_size", own.busy_buffers_size, buffering.busy_buffers_size),
    ):
        parse.limit(paths[path], "responseBufferBytes", value, text)
    parse.problems += _sizes(own)
    return parse.result(with_sources(settings, origin_of(policy), PROXY_FIELDS))


def origin_of(policy: api.AttachedPolicy) -> Origin:
    """Return the origin of a policy."""
    kind = type(policy).__name__
    return Origin(kind, policy.metadata.namespace, policy.metadata.name)


def _sizes(proxy: NginxResponseSettings) -> list[str]:
    """Return the problems of combinations of sizes that NGINX rejects."""
    problems = []
    if proxy.buffer_size == 0:
        problems.append("spec.buffering.bufferSize: must be greater than 0")
    place = "spec.buffering.busyBuffersSize"
    if (
        proxy.busy_buffers_size is not None
        and proxy.buffer_size is not None
        and proxy.busy_buffers_size < proxy.buffer_size
    ):
        problems.append(f"{place}: must not be less than bufferSize")
    if proxy.busy_buffers_size is not None and proxy.buffers is not None:
        if proxy.busy_buffers_size < proxy.buffers.size:
            problems.append(f"{place}: must not be less than buffers.size")
        if proxy.busy_buffers_size >= (proxy.buffers.number - 1) * proxy.buffers.size:
            problems.append(f"{place}: must be less than (buffers.number - 1) * buffers.size")
    return problems


def rate_limits(policy: api.RateLimitPolicy, ceilings: ResourceLimits) -> ParsedPolicy:
    """Translate a RateLimitPolicy."""
    parse, spec = FieldParser(ceilings), policy.spec.rate_limit
    limits = []
    for index, rule in enumerate(spec.local.rules):
        place = f"rateLimit.local.rules[{index}]"
        key = parse(f"{place}.key", nginx_values.parse_template, rule.key)
        rate = parse(f"{place}.rate", nginx_values.rate, rule.rate) or (1, "s")
        memory = parse(f"{place}.zoneSize", nginx_values.size, rule.zone_size)
        parse.limit(f"{place}.zoneSize", "zoneBytes", memory, rule.zone_size)
        if memory is not None and memory < 32 << 10:
            parse.problems.append(f"spec.{place}.zoneSize: must be at least 32k")
        for field, number in (("burst", rule.burst), ("delay", rule.delay)):
            if number is not None and not 0 <= number <= MAX_BURST:
                parse.problems.append(f"spec.{place}.{field}: must be from 0 to {MAX_BURST}")
        limits.append(
            ir.RateLimit(
                name=f"{policy.metadata.namespace}/{policy.metadata.name}/{index}",
                origin=origin_of(policy).field(place),
                key=key or (),
                rate=rate[0],
                per="second" if rate[1] == "s" else "minute",
                memory=_ZONE if memory is None else memory,
                burst=rule.burst or 0,
                delay=None if rule.no_delay else rule.delay or 0,
            )
        )
    answers: list[api.RateLimitAnswer] = [spec, *spec.local.rules]
    places = ["rateLimit", *(f"rateLimit.local.rules[{i}]" for i in range(len(spec.local.rules)))]
    levels = [
        NginxRateLimits(_LEVELS[answer.log_level], (origin_of(policy).field(f"{place}.logLevel"),))
        for place, answer in zip(places, answers, strict=True)
        if answer.log_level in _LEVELS
    ]
    return parse.result(
        ir.RateLimits(
            tuple(limits),
            next(
                (answer.reject_code for answer in answers if answer.reject_code is not None), None
            ),
            next((answer.dry_run for answer in answers if answer.dry_run is not None), None),
            levels[0] if levels else NginxRateLimits(),
        )
    )
