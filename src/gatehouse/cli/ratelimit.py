"""`gatehouse ratelimit`: rate limit service for limits shared by data planes."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import click

from gatehouse.cli import run
from gatehouse.cli.durations import Duration
from gatehouse.cli.parameters import PATH
from gatehouse.ratelimit import main


@click.command()
@click.option(
    "--redis",
    required=True,
    envvar="GATEHOUSE_REDIS",
    help="URL of the Redis that holds the token buckets: redis://[user:password@]host:port/0, "
    "rediss://… for TLS (?ssl_ca_certs=FILE), or unix://PATH. Use the variable GATEHOUSE_REDIS if "
    "the URL has a password.",
)
@click.option(
    "--bind-address",
    "listen",
    default="0.0.0.0:8081",
    show_default=True,
    help="Listen address of the gRPC server (host:port).",
)
@click.option(
    "--health-bind-address",
    "health",
    default="",
    help="Listen address of /livez, /readyz and /metrics (host:port). Default: not served.",
)
@click.option(
    "--tls-cert-file",
    "tls_cert",
    type=PATH,
    default=None,
    help="Path of the TLS certificate (PEM). Default: no TLS.",
)
@click.option(
    "--tls-private-key-file",
    "tls_key",
    type=PATH,
    default=None,
    help="Path of the TLS private key (PEM).",
)
@click.option(
    "--client-ca-file",
    "client_ca",
    type=PATH,
    default=None,
    help="Path of the CA certificates (PEM) that clients must be verified by. "
    "Default: client certificates are not requested.",
)
@click.option("--prefix", default="gatehouse", show_default=True, help="Prefix of Redis keys.")
@click.option(
    "--redis-timeout",
    type=click.FloatRange(min=0.001),
    default=main.REDIS_TIMEOUT_SECONDS,
    show_default=True,
    help="Timeout of a Redis command, in seconds. Requests are allowed if Redis does not answer.",
)
@click.option(
    "--shutdown-delay",
    type=Duration(),
    default="3s",
    show_default=True,
    help="Time between failing /readyz and the end of serving, such as 3s.",
)
def ratelimit(
    redis: str,
    listen: str,
    health: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    prefix: str,
    redis_timeout: float,
    shutdown_delay: float,
) -> None:
    """Serve Envoy's rate limit protocol with counts that all data planes share in a Redis.

    Several instances may use one Redis. Each limit is a token bucket, named by the request's
    descriptor.
    """
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert-file and --tls-private-key-file must be set together")
    if client_ca is not None and tls_cert is None:
        raise click.UsageError(
            "--client-ca-file requires --tls-cert-file and --tls-private-key-file"
        )
    options = main.RateLimitOptions(
        redis=redis,
        listen=listen,
        health=health,
        prefix=prefix,
        redis_timeout=redis_timeout,
        shutdown_delay_seconds=shutdown_delay,
        tls_cert=tls_cert,
        tls_key=tls_key,
        client_ca=client_ca,
    )

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await main.run_rate_limit_service(options, await run.any_event(stop, leave))

    run.run_until_signal(part, expected=(main.RedisUrlError, ssl.SSLError, ValueError))


COMMANDS = (ratelimit,)
