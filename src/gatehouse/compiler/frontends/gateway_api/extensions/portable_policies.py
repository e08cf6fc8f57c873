"""Translation of TrafficPolicy of ``gatehouse.dev`` to IR. No I/O.

Its CRD has the same rules for most fields. They are checked again, because an invalid value must
not end the routes of other objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from gatehouse.apis import traffic_policies as api
from gatehouse.apis.gateway import GATEWAY_API_GROUP
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import (
    DEFAULT_ZONE_BYTES,
    MAX_BURST,
    FieldParser,
    ParsedPolicy,
    TrafficSettings,
    origin_of,
)
from gatehouse.compiler.frontends.gateway_api.extensions.portable_values import (
    RATE_KEYS,
    duration_seconds,
    header_bytes,
    named_value,
    positive_count,
    positive_seconds,
    request_attribute,
    whole_bytes,
)
from gatehouse.compiler.frontends.gateway_api.extensions.service_settings import service_settings
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.http import Retry
from gatehouse.compiler.ir.proxy_settings import (
    NginxClientSettings,
    NginxCompression,
    NginxResponseSettings,
)

TRAFFIC_FIELDS = {
    "client.body_size": "client.maxBodySize",
    "header_bytes": "client.maxHeaderSize",
    "client.nginx.body_timeout": "client.bodyTimeout",
    "client.nginx.requests": "client.keepAlive.maxRequests",
    "client.nginx.lifetime": "client.keepAlive.maxLifetime",
    "client.nginx.idle": "client.keepAlive.idleTimeout",
    "proxy.nginx.connect": "timeouts.connect",
    "proxy.send": "timeouts.send",
    "proxy.read": "timeouts.read",
    "proxy.nginx.buffering": "responseBuffering",
    "compression.enabled": "compression",
    "retry": "retries",
    "rates.status": "rateLimit.statusCode",
    "rates.dry_run": "rateLimit.dryRun",
    "upstream.balancing": "backend.loadBalancing.method",
    "upstream.key": "backend.loadBalancing.hashKey",
    "upstream.connections": "backend.keepAlive.maxIdleConnections",
    "upstream.requests": "backend.keepAlive.maxRequests",
    "upstream.lifetime": "backend.keepAlive.maxLifetime",
    "upstream.idle": "backend.keepAlive.idleTimeout",
    "upstream.breaker": "backend.circuitBreaker",
    "upstream.endpoint_connections": "backend.circuitBreaker.maxConnectionsPerEndpoint",
    "upstream.passive_checks": "backend.healthChecks.passive",
    "upstream.active_checks": "backend.healthChecks.active",
}
"""Paths of fields of the IR, and the fields of a TrafficPolicy that set them."""

MAX_REQUEST_RATE = 1_000_000
"""Maximum number of requests per second or minute."""

_PERIODS: Mapping[str, Literal["second", "minute"]] = {"Second": "second", "Minute": "minute"}
RATE_PERIODS = tuple(_PERIODS)

STATUS_CODES = (429, 503)
"""Status codes of responses to requests above a limit."""

_MODES = {"Enabled": True, "Disabled": False}
POLICY_MODES = tuple(_MODES)

COMPRESSED_TYPES = (
    "application/javascript",
    "application/json",
    "application/xml",
    "image/svg+xml",
    "text/css",
    "text/javascript",
    "text/plain",
    "text/xml",
)
"""Types that are compressed by default, besides HTML."""

MEDIA_TYPE_PATTERN = r"[a-z0-9.+-]+/[a-z0-9.+-]+"
MAX_MEDIA_TYPE_LENGTH = 46
"""Maximum number of characters. A longer one does not fit into the table of NGINX."""

CALL_TYPE = "application/grpc"
"""Type of gRPC calls, and start of others. Compression would delay their messages."""

MIN_COMPRESSED_BYTES, MAX_COMPRESSED_BYTES, COMPRESSED_BYTES = 30, 1 << 30, 1024
"""Limits and default of the minimum length. Envoy accepts no smaller one."""

MAX_RETRY_ATTEMPTS = 8
"""Maximum number of retries, which NGINX supports without a pause."""

MAX_RETRY_PAUSE = "1m"
_MAX_PAUSE_SECONDS = 60.0

RETRY_CODES = (400, 599)
"""Lowest and highest status code after which a request is sent again."""

_ALL_REQUESTS = ("all",)
"""Key of a rule that counts all requests together."""

ROUTING_KINDS = ("Gateway", "HTTPRoute", "GRPCRoute")
_TARGETS = {("", "Service"), *((GATEWAY_API_GROUP, kind) for kind in ROUTING_KINDS)}


def traffic_policy(policy: api.TrafficPolicy, limits: ResourceLimits) -> ParsedPolicy:
    """Translate a TrafficPolicy."""
    parse, spec = FieldParser(limits), policy.spec
    parse.problems += _target_problems(policy)
    client = spec.client or api.ClientSpec()
    return parse.result(
        TrafficSettings(
            client=_client(parse, client),
            proxy=_proxy(parse, spec),
            rates=_rates(parse, policy),
            compression=_compression(parse, spec.compression),
            retry=_retry(parse, policy),
            header_bytes=parse("client.maxHeaderSize", header_bytes, client.max_header_size),
            upstream=service_settings(parse, spec.backend or api.TrafficBackendSpec()),
        )
    )


def _target_problems(policy: api.TrafficPolicy) -> list[str]:
    """Return the problems of targets, and of fields that do not belong to them."""
    spec, problems = policy.spec, []
    for index, target in enumerate(policy.targets):
        if (target.group, target.kind) not in _TARGETS:
            kind = f"{target.group}/{target.kind}".lstrip("/")
            problems.append(f"spec.targetRefs[{index}]: kind {kind} is not supported")
    of_routes = {
        "client": spec.client,
        "timeouts": spec.timeouts,
        "responseBuffering": spec.response_buffering,
        "compression": spec.compression,
        "retries": spec.retries,
        "rateLimit": spec.rate_limit,
    }
    present = [f"spec.{name}" for name, value in of_routes.items() if value is not None]
    kinds = {target.kind for target in policy.targets}
    if present and "Service" in kinds:
        problems.append(f"{', '.join(present)}: may not be set for a Service")
    if spec.retries is not None and "GRPCRoute" in kinds:
        problems.append("spec.retries: may not be set for a GRPCRoute")
    of_gateways = spec.client is not None and spec.client.max_header_size is not None
    if of_gateways and kinds != {"Gateway"}:
        # A proxy reads the headers before it knows the route.
        problems.append("spec.client.maxHeaderSize: may be set for Gateways only")
    if spec.backend is not None and kinds != {"Service"}:
        problems.append("spec.backend: may be set for Services only")
    return problems


def _client(parse: FieldParser, client: api.ClientSpec) -> ir.ClientSettings:
    keep_alive = client.keep_alive
    return parse.client_settings(
        parse("client.maxBodySize", whole_bytes, client.max_body_size),
        NginxClientSettings(
            body_timeout=parse("client.bodyTimeout", positive_seconds, client.body_timeout),
            requests=parse("client.keepAlive.maxRequests", positive_count, keep_alive.max_requests),
            lifetime=parse(
                "client.keepAlive.maxLifetime", positive_seconds, keep_alive.max_lifetime
            ),
            idle=parse("client.keepAlive.idleTimeout", duration_seconds, keep_alive.idle_timeout),
        ),
    )


def _proxy(parse: FieldParser, spec: api.TrafficPolicySpec) -> ir.ProxySettings:
    timeouts = spec.timeouts or api.TimeoutsSpec()
    return ir.ProxySettings(
        send=parse("timeouts.send", positive_seconds, timeouts.send),
        read=parse("timeouts.read", positive_seconds, timeouts.read),
        nginx=NginxResponseSettings(
            buffering=named_value(parse, "responseBuffering", _MODES, spec.response_buffering),
            connect=parse("timeouts.connect", positive_seconds, timeouts.connect),
        ),
    )


def _compression(parse: FieldParser, spec: api.ResponseCompressionSpec | None) -> ir.Compression:
    """Return the compression of a route, which replaces that of its Gateway entirely."""
    if spec is None:
        return ir.Compression()
    for index, media_type in enumerate(spec.types):
        place = f"spec.compression.types[{index}]"
        if len(media_type) > MAX_MEDIA_TYPE_LENGTH:
            parse.problems.append(f"{place}: longer than {MAX_MEDIA_TYPE_LENGTH} characters")
        elif not re.fullmatch(MEDIA_TYPE_PATTERN, media_type):
            parse.problems.append(f"{place}: must match {MEDIA_TYPE_PATTERN}")
        elif media_type.startswith(CALL_TYPE):
            parse.problems.append(f"{place}: messages of gRPC calls are not compressed")
    least, most = MIN_COMPRESSED_BYTES, MAX_COMPRESSED_BYTES
    min_length = COMPRESSED_BYTES if spec.min_length is None else spec.min_length
    if not least <= min_length <= most:
        parse.problems.append(f"spec.compression.minLength: must be from {least} to {most}")
    types = dict.fromkeys((ir.HTML, *(spec.types or COMPRESSED_TYPES)))
    return ir.Compression(
        enabled=named_value(parse, "compression.mode", _MODES, spec.mode),
        min_length=min_length,
        types=tuple(types),
        # As always at Envoy.
        nginx=NginxCompression(vary=True, proxied=("any",)),
    )


def _retry(parse: FieldParser, policy: api.TrafficPolicy) -> Retry | None:
    spec = policy.spec.retries
    if spec is None:
        return None
    if not 0 <= spec.attempts <= MAX_RETRY_ATTEMPTS:
        parse.problems.append(f"spec.retries.attempts: must be from 0 to {MAX_RETRY_ATTEMPTS}")
    least, most = RETRY_CODES
    if any(not least <= code <= most for code in spec.codes):
        parse.problems.append(f"spec.retries.codes: must be from {least} to {most}")
    pause = parse("retries.backoff", positive_seconds, spec.backoff) or 0.0
    if pause > _MAX_PAUSE_SECONDS:
        parse.problems.append(f"spec.retries.backoff: must not be longer than {MAX_RETRY_PAUSE}")
    origin = origin_of(policy).field("retries")
    return Retry(spec.attempts, tuple(sorted(set(spec.codes))), pause, origin)


def _rates(parse: FieldParser, policy: api.TrafficPolicy) -> ir.RateLimits:
    spec = policy.spec.rate_limit
    if spec is None:
        return ir.RateLimits()
    if spec.status_code is not None and spec.status_code not in STATUS_CODES:
        codes = ", ".join(map(str, STATUS_CODES))
        parse.problems.append(f"spec.rateLimit.statusCode: must be one of {codes}")
    limits, shared = (
        tuple(
            _limit(parse, policy, f"{counted}.rules[{index}]", rule, f"{index}", memory)
            for index, rule in enumerate(rates.rules)
        )
        # The rate limit service counts in its own memory.
        for counted, rates, memory in (
            ("local", spec.local, DEFAULT_ZONE_BYTES), ("shared", spec.shared, 0)
        )
    )  # fmt: skip
    return ir.RateLimits(limits, spec.status_code, spec.dry_run, shared=shared)


def _limit(
    parse: FieldParser,
    policy: api.TrafficPolicy,
    where: str,
    rule: api.RequestRateSpec,
    name: str,
    memory: int,
) -> ir.RateLimit:
    place, metadata = f"rateLimit.{where}", policy.metadata
    for field, number, least, most in (
        ("requests", rule.requests, 1, MAX_REQUEST_RATE),
        ("burst", rule.burst, 0, MAX_BURST),
    ):
        if not least <= number <= most:
            parse.problems.append(f"spec.{place}.{field}: must be from {least} to {most}")
    per = named_value(parse, f"{place}.per", _PERIODS, rule.per)
    key = request_attribute(parse, f"{place}.key", RATE_KEYS, rule.key)
    return ir.RateLimit(
        name=f"TrafficPolicy/{metadata.namespace}/{metadata.name}/{name}",
        origin=origin_of(policy).field(place),
        key=_ALL_REQUESTS if key is None else (key,),
        rate=rule.requests,
        per=per or "second",
        memory=memory,
        burst=rule.burst,
        # Envoy does not delay requests.
        delay=None,
    )
