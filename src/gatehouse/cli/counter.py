"""`gatehouse counter`: limits that data planes share."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import click

from gatehouse.cli import run
from gatehouse.ratelimit import main

PATH = click.Path(path_type=Path)


@click.command()
@click.option(
    "--redis",
    required=True,
    envvar="GATEHOUSE_REDIS",
    help="Where buckets are: redis://[user:password@]host:port/0, rediss://… for TLS "
    "(?ssl_ca_certs=FILE), or unix://PATH. Better in $GATEHOUSE_REDIS, if it has a password.",
)
@click.option("--listen", default="0.0.0.0:8081", show_default=True, help="host:port to serve.")
@click.option("--health", default="", help="host:port of /livez, /readyz and /metrics.")
@click.option("--tls-cert", type=PATH, default=None, help="Certificate to serve with, PEM.")
@click.option("--tls-key", type=PATH, default=None, help="Its key.")
@click.option("--client-ca", type=PATH, default=None, help="CA of the certificates to demand.")
@click.option("--prefix", default="gatehouse", show_default=True, help="What keys begin with.")
@click.option(
    "--redis-timeout",
    type=click.FloatRange(min=0.001),
    default=0.1,
    show_default=True,
    help="Seconds in which Redis must answer; then, and while it is away, all requests pass.",
)
@click.option(
    "--leave",
    type=click.FloatRange(min=0),
    default=3.0,
    show_default=True,
    help="Seconds to go on serving after the end was announced to probes.",
)
def counter(
    redis: str,
    listen: str,
    health: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    prefix: str,
    redis_timeout: float,
    leave: float,
) -> None:
    """Count requests of all data planes together, in a Redis, as Envoy asks for it.

    Several may run over one Redis. Each limit is a bucket of tokens, named by who asks.
    """
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    if client_ca is not None and tls_cert is None:
        raise click.UsageError("--client-ca needs --tls-cert and --tls-key")
    options = main.Options(
        redis=redis,
        listen=listen,
        health=health,
        prefix=prefix,
        redis_timeout=redis_timeout,
        shutdown_delay_seconds=leave,
        tls_cert=tls_cert,
        tls_key=tls_key,
        client_ca=client_ca,
    )

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await main.run(options, await run.either(stop, leave))

    run.run(part, expected=(main.AddressError, ssl.SSLError, ValueError))


COMMANDS = (counter,)
