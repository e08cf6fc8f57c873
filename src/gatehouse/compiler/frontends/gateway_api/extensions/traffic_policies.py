"""ClientSettingsPolicy, ProxySettingsPolicy and RateLimitPolicy in the IR's form. Pure."""

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
"""Bytes of a rate limit's counts where none are given."""

_LEVELS: dict[str, Literal["info", "notice", "warn", "error"]] = {
    "info": "info",
    "notice": "notice",
    "warn": "warn",
    "error": "error",
}


class Read(msgspec.Struct, frozen=True):
    """What a policy asks for, and what is wrong with it: then it asks for nothing."""

    settings: Any = None
    problems: tuple[str, ...] = ()


class Reader:
    """Reads fields; collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def __call__(self, field: str, read: Callable[[A], V], value: A) -> V | None:
        """Give ``read(value)``; None if it cannot be used, which is noted for ``field``."""
        try:
            return read(value)
        except ValueProblem as problem:
            self.problems.append(f"spec.{field}: {problem}")
            return None

    def result(self, settings: object) -> Read:
        """Give what was read."""
        return Read(None, tuple(self.problems)) if self.problems else Read(settings)


def client_settings(policy: api.ClientSettingsPolicy) -> Read:
    """Read a ClientSettingsPolicy."""
    read, body, kept = Reader(), policy.spec.body, policy.spec.keep_alive
    found = ir.ClientSettings(
        body_size=read("body.maxSize", nginx_values.size, body.max_size),
        body_buffer=read("body.bufferSize", nginx_values.size, body.buffer_size),
        body_timeout=read("body.timeout", nginx_values.time, body.timeout),
        requests=kept.requests,
        lifetime=read("keepAlive.time", nginx_values.time, kept.time),
        idle=read("keepAlive.timeout.server", nginx_values.time, kept.timeout.server),
        keepalive_header_timeout=read(
            "keepAlive.timeout.header", nginx_values.time, kept.timeout.header
        ),
        keepalive_min_timeout=read("keepAlive.minTimeout", nginx_values.time, kept.min_timeout),
    )
    if found.keepalive_header_timeout is not None and found.idle is None:
        read.problems.append("spec.keepAlive.timeout.header: needs keepAlive.timeout.server")
    return read.result(found)


def proxy_settings(policy: api.ProxySettingsPolicy) -> Read:
    """Read a ProxySettingsPolicy."""
    read, asked, waits = Reader(), policy.spec.buffering, policy.spec.timeout
    buffers = None
    if asked.buffers is not None:
        size = read("buffering.buffers.size", nginx_values.size, asked.buffers.size)
        buffers = ir.Buffers(asked.buffers.number, size or 0)
        if size == 0:
            read.problems.append("spec.buffering.buffers.size: must be more than 0")
    found = ir.ProxySettings(
        buffering=None if asked.disable is None else not asked.disable,
        buffer_size=read("buffering.bufferSize", nginx_values.size, asked.buffer_size),
        buffers=buffers,
        busy_buffers_size=read(
            "buffering.busyBuffersSize", nginx_values.size, asked.busy_buffers_size
        ),
        connect=read("timeout.connect", nginx_values.time, waits.connect),
        send=read("timeout.send", nginx_values.time, waits.send),
        read=read("timeout.read", nginx_values.time, waits.read),
    )
    read.problems += _sizes(found)
    return read.result(found)


def _sizes(found: ir.ProxySettings) -> list[str]:
    """Say which sizes NGINX would refuse together."""
    problems = []
    if found.buffer_size == 0:
        problems.append("spec.buffering.bufferSize: must be more than 0")
    place = "spec.buffering.busyBuffersSize"
    if (
        found.busy_buffers_size is not None
        and found.buffer_size is not None
        and found.busy_buffers_size < found.buffer_size
    ):
        problems.append(f"{place}: must not be less than bufferSize")
    if found.busy_buffers_size is not None and found.buffers is not None:
        if found.busy_buffers_size < found.buffers.size:
            problems.append(f"{place}: must not be less than one of buffers")
        if found.busy_buffers_size >= (found.buffers.number - 1) * found.buffers.size:
            problems.append(f"{place}: must be less than all of buffers but one")
    return problems


def rate_limits(policy: api.RateLimitPolicy) -> Read:
    """Read a RateLimitPolicy."""
    read, asked = Reader(), policy.spec.rate_limit
    limits = []
    for index, rule in enumerate(asked.local.rules):
        place = f"rateLimit.local.rules[{index}]"
        key = read(f"{place}.key", nginx_values.template, rule.key)
        rate = read(f"{place}.rate", nginx_values.rate, rule.rate) or (1, "s")
        memory = read(f"{place}.zoneSize", nginx_values.size, rule.zone_size)
        if memory is not None and memory < 32 << 10:
            read.problems.append(f"spec.{place}.zoneSize: NGINX needs 32k or more")
        for field, number in (("burst", rule.burst), ("delay", rule.delay)):
            if number is not None and number < 0:
                read.problems.append(f"spec.{place}.{field}: must not be less than 0")
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
    answers: list[api.RateLimitAnswer] = [asked, *asked.local.rules]
    levels = [_LEVELS[each.log_level] for each in answers if each.log_level in _LEVELS]
    return read.result(
        ir.RateLimits(
            tuple(limits),
            levels[0] if levels else "",
            next((each.reject_code for each in answers if each.reject_code is not None), None),
            next((each.dry_run for each in answers if each.dry_run is not None), None),
        )
    )
