"""Start, run and shutdown of the rate limit service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import urlsplit

import grpc.aio
import msgspec
import redis.asyncio
import structlog
from envoy.service.ratelimit.v3 import rls_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gatehouse.ratelimit.messages import parse_rate_limit_request
from gatehouse.ratelimit.metrics import ServiceMetrics
from gatehouse.ratelimit.service import RATE_LIMIT_SERVICE, RateLimitService
from gatehouse.ratelimit.token_buckets import MAX_CONCURRENT_BATCHES, TokenBuckets
from gatehouse.runtime import grpc_limits
from gatehouse.runtime.certificate_watcher import CertificateWatcher
from gatehouse.runtime.health import HealthServer
from gatehouse.runtime.prometheus import page_of
from kube_base.runtime.time_limits import scaled

log = structlog.get_logger("gatehouse.counter")

_GRACE_SECONDS = 5.0
"""Time in seconds to finish received requests at shutdown."""

REDIS_TIMEOUT_SECONDS = scaled(0.1)
"""Default timeout of a Redis request in seconds."""

_MAX_MESSAGE_BYTES = 1 << 20
"""Maximum size of a message: each of the 16 descriptors of a route may contain headers of 32 KiB.
The requests of a longer message would pass."""

_OPTIONS = (
    *grpc_limits.server_options(_MAX_MESSAGE_BYTES, max_streams=1000),
    ("grpc.keepalive_time_ms", 30_000),
)


class RedisUrlError(Exception):
    """The URL of Redis is invalid. The message contains the reason."""


class RateLimitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the rate limit service."""

    redis: str
    """URL: ``redis://``, ``rediss://`` or ``unix://``. It may contain a password."""
    listen: str = "0.0.0.0:8081"
    health: str = ""
    prefix: str = "gatehouse"
    redis_timeout: float = REDIS_TIMEOUT_SECONDS
    """Timeout of a Redis request in seconds."""
    shutdown_delay_seconds: float = 3.0
    """Time in seconds for which it still serves after it reports to be shutting down."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None


async def run_rate_limit_service(
    options: RateLimitOptions,
    stop: asyncio.Event,
    listening: Callable[[int], None] = lambda _port: None,
) -> None:
    """Serve until ``stop`` is set, and finish the received requests.

    Raises AddressError for an invalid URL, OSError if an address or a file is not available, and
    ssl.SSLError for invalid certificates.
    """
    client = _client(options)
    buckets: TokenBuckets
    metrics = ServiceMetrics(lambda: buckets.outages.since is None)
    buckets = TokenBuckets(client, options.prefix, options.redis_timeout, metrics)
    state = health.aio.HealthServicer()
    server = _server(buckets, metrics, state)
    port = _bind(server, options)
    probes = HealthServer(lambda: "ending" if stop.is_set() else "", page_of(metrics.registry))
    async with contextlib.AsyncExitStack() as ends:
        ends.push_async_callback(client.aclose)
        ends.push_async_callback(server.stop, _GRACE_SECONDS)
        ends.push_async_callback(probes.stop)
        if options.health:
            await probes.start(options.health)
        await ends.enter_async_context(_running(buckets))
        await buckets.probe()
        await server.start()
        for service in ("", RATE_LIMIT_SERVICE):
            await state.set(service, health_pb2.HealthCheckResponse.SERVING)
        log.info("counting", listen=options.listen, port=port, redis=_redacted(options.redis))
        listening(port)
        await stop.wait()
        await state.enter_graceful_shutdown()
        await asyncio.sleep(options.shutdown_delay_seconds)
        # Stopped before the Redis client that it uses.
        await server.stop(_GRACE_SECONDS)
    log.info("stopped")


@contextlib.asynccontextmanager
async def _running(buckets: TokenBuckets) -> AsyncIterator[None]:
    task = asyncio.create_task(buckets.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _client(options: RateLimitOptions) -> redis.asyncio.Redis:
    try:
        return redis.asyncio.Redis.from_url(
            options.redis,
            socket_connect_timeout=options.redis_timeout,
            max_connections=2 * MAX_CONCURRENT_BATCHES,
            # One retry replaces a connection that Redis closed while idle; other failures are
            # handled here.
            retry=Retry(NoBackoff(), 1),
            client_name="gatehouse-counter",
        )
    except (ValueError, TypeError) as error:
        raise RedisUrlError(f"--redis {_redacted(options.redis)}: {error}") from error


def _redacted(url: str) -> str:
    """Return the URL of Redis without credentials."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _server(
    buckets: TokenBuckets, metrics: ServiceMetrics, state: health.aio.HealthServicer
) -> grpc.aio.Server:
    server = grpc.aio.server(options=_OPTIONS)
    service = RateLimitService(buckets, metrics)
    handler = grpc.unary_unary_rpc_method_handler(
        service.ShouldRateLimit,
        request_deserializer=parse_rate_limit_request,
        response_serializer=rls_pb2.RateLimitResponse.SerializeToString,
    )
    methods = grpc.method_handlers_generic_handler(RATE_LIMIT_SERVICE, {"ShouldRateLimit": handler})
    server.add_generic_rpc_handlers((methods,))
    health_pb2_grpc.add_HealthServicer_to_server(state, server)
    return server


def _bind(server: grpc.aio.Server, options: RateLimitOptions) -> int:
    try:
        if options.tls_cert is None or options.tls_key is None:
            return server.add_insecure_port(options.listen)
        certificate = CertificateWatcher(options.tls_cert, options.tls_key, options.client_ca)
        return server.add_secure_port(options.listen, certificate.credentials())
    except RuntimeError as error:
        raise OSError(f"cannot listen on {options.listen}: {error}") from error
