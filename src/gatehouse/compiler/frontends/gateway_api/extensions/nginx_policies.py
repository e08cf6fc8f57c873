"""Translation of ClientSettingsPolicy, ProxySettingsPolicy and RateLimitPolicy to IR. No I/O."""

from __future__ import annotations

from typing import Literal

from gatehouse.apis import nginx_gateway as api
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import (
    DEFAULT_ZONE_BYTES,
    MAX_BURST,
    FieldParser,
    ParsedPolicy,
    TrafficSettings,
    origin_of,
)
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.proxy_settings import (
    Buffers,
    NginxClientSettings,
    NginxRateLimits,
    NginxResponseSettings,
)

_LEVELS: dict[str, Literal["info", "notice", "warn", "error"]] = {
    "info": "info",
    "notice": "notice",
    "warn": "warn",
    "error": "error",
}


CLIENT_FIELDS = {
    "client.body_size": "body.maxSize",
    "client.nginx.body_buffer": "body.bufferSize",
    "client.nginx.body_timeout": "body.timeout",
    "client.nginx.requests": "keepAlive.requests",
    "client.nginx.lifetime": "keepAlive.time",
    "client.nginx.idle": "keepAlive.timeout.server",
    "client.nginx.keepalive_header_timeout": "keepAlive.timeout.header",
    "client.nginx.keepalive_min_timeout": "keepAlive.minTimeout",
}
"""Paths of fields of the IR, and the fields of a ClientSettingsPolicy that set them."""

PROXY_FIELDS = {
    "proxy.nginx.buffering": "buffering.disable",
    "proxy.nginx.buffer_size": "buffering.bufferSize",
    "proxy.nginx.buffers": "buffering.buffers",
    "proxy.nginx.busy_buffers_size": "buffering.busyBuffersSize",
    "proxy.nginx.connect": "timeout.connect",
    "proxy.send": "timeout.send",
    "proxy.read": "timeout.read",
}
"""Paths of fields of the IR, and the fields of a ProxySettingsPolicy that set them."""

RATE_FIELDS = {
    "rates.status": "rateLimit.rejectCode",
    "rates.dry_run": "rateLimit.dryRun",
    "rates.nginx.log_level": "rateLimit.logLevel",
}
"""Paths of fields of the IR, and the fields of a RateLimitPolicy that set them."""


def client_settings(policy: api.ClientSettingsPolicy, limits: ResourceLimits) -> ParsedPolicy:
    """Translate a ClientSettingsPolicy."""
    parse, body, keep_alive = FieldParser(limits), policy.spec.body, policy.spec.keep_alive
    size, time, paths = nginx_values.size, nginx_values.parse_nginx_seconds, CLIENT_FIELDS
    timeout = keep_alive.timeout
    body_size = parse(paths["client.body_size"], size, body.max_size)
    own = NginxClientSettings(
        body_buffer=parse(paths["client.nginx.body_buffer"], size, body.buffer_size),
        body_timeout=parse(paths["client.nginx.body_timeout"], time, body.timeout),
        requests=parse(
            paths["client.nginx.requests"], nginx_values.parse_count, keep_alive.requests
        ),
        lifetime=parse(paths["client.nginx.lifetime"], time, keep_alive.time),
        idle=parse(paths["client.nginx.idle"], time, timeout.server),
        keepalive_header_timeout=parse(
            paths["client.nginx.keepalive_header_timeout"], time, timeout.header
        ),
        keepalive_min_timeout=parse(
            paths["client.nginx.keepalive_min_timeout"], time, keep_alive.min_timeout
        ),
    )
    parse.limit(
        paths["client.nginx.body_buffer"], "bodyBufferBytes", own.body_buffer, body.buffer_size
    )
    if own.keepalive_header_timeout is not None and own.idle is None:
        parse.problems.append(
            "spec.keepAlive.timeout.header: keepAlive.timeout.server must be set, too"
        )
    return parse.result(TrafficSettings(client=parse.client_settings(body_size, own)))


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
        buffer_size=parse(paths["proxy.nginx.buffer_size"], size, buffering.buffer_size),
        buffers=buffers,
        busy_buffers_size=parse(
            paths["proxy.nginx.busy_buffers_size"], size, buffering.busy_buffers_size
        ),
        connect=parse(paths["proxy.nginx.connect"], time, timeouts.connect),
    )
    settings = ir.ProxySettings(
        send=parse(paths["proxy.send"], time, timeouts.send),
        read=parse(paths["proxy.read"], time, timeouts.read),
        nginx=own,
    )
    for path, value, text in (
        ("proxy.nginx.buffer_size", own.buffer_size, buffering.buffer_size),
        ("proxy.nginx.busy_buffers_size", own.busy_buffers_size, buffering.busy_buffers_size),
    ):
        parse.limit(paths[path], "responseBufferBytes", value, text)
    parse.problems += _sizes(own)
    return parse.result(TrafficSettings(proxy=settings))


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
                memory=DEFAULT_ZONE_BYTES if memory is None else memory,
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
    rates = ir.RateLimits(
        tuple(limits),
        next((answer.reject_code for answer in answers if answer.reject_code is not None), None),
        next((answer.dry_run for answer in answers if answer.dry_run is not None), None),
        levels[0] if levels else NginxRateLimits(),
    )
    return parse.result(TrafficSettings(rates=rates))
