"""The process: TLS, the server, a graceful end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog
from aiohttp import web

from gatehouse.apiserver import housekeeping
from gatehouse.apiserver.http import Api
from gatehouse.apiserver.storage.sqlite import Log
from gatehouse.apiserver.storage.store import Store
from gatehouse.apiserver.tokens import Tokens
from gatehouse.apiserver.verbs import Verbs

log = structlog.get_logger("gatehouse.apiserver")

MOST_BYTES = 3 * 1024 * 1024
"""Of a request's body, as Kubernetes limits it."""


class Options(msgspec.Struct, frozen=True):
    """How the server runs."""

    data_dir: Path
    bind: str
    """``host:port``; port 0: any."""
    tls_cert: Path
    tls_key: Path
    client_ca: Path
    """CA of client certificates."""
    token_key: Path
    """EC P-256 key, PEM, that signs ServiceAccount tokens."""


async def run(
    options: Options, stop: asyncio.Event, ready: Callable[[int], None] | None = None
) -> None:
    """Serve until ``stop``; ``ready`` is given the port. Raises OSError if it cannot be had."""
    options.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    storage = Log(options.data_dir / "gatehouse.db")
    store = Store(storage)
    store.remember()
    verbs = Verbs(store)
    await housekeeping.prepare(verbs)
    api = Api(store, verbs, Tokens(options.token_key, store), stop)
    runner = web.AppRunner(_application(api), access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    host, _, port = options.bind.rpartition(":")
    site = web.TCPSite(runner, host.strip("[]"), int(port), ssl_context=_tls(options))
    keeper = asyncio.create_task(housekeeping.keep(store, verbs))
    try:
        await site.start()
        chosen = runner.addresses[0][1]
        log.info("serving", bind=f"{host}:{chosen}", revision=store.revision)
        if ready is not None:
            ready(chosen)
        await stop.wait()
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await runner.cleanup()
        await asyncio.to_thread(storage.close)
        log.info("stopped")


def _application(api: Api) -> web.Application:
    application = web.Application(client_max_size=MOST_BYTES)
    application.router.add_route("*", "/{path:.*}", api.handle)
    return application


def _tls(options: Options) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(options.client_ca))
    context.load_cert_chain(options.tls_cert, options.tls_key)
    # A client without a certificate may still have a token.
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
