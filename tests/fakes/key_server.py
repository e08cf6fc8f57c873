"""An HTTPS server of JSON Web Key Sets, with an authority of its own."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from fakes.durations import be_slow
from gatehouse.standalone import pki


class KeyServer:
    """A server with replaceable responses that records its requests."""

    def __init__(self, url: str, authority: str) -> None:
        self.url = url
        self.authority = authority
        self.body = b""
        self.status = 200
        self.pause = 0.0
        """Seconds that it takes to answer."""
        self.asked: list[tuple[int, str]] = []

    def serve(self, key: bytes) -> None:
        """Answer with a set of one symmetric key from now on."""
        encoded = base64.urlsafe_b64encode(key).decode().rstrip("=")
        self.body = json.dumps({"keys": [{"kty": "oct", "kid": "a", "k": encoded}]}).encode()

    async def answer(self, request: web.Request) -> web.Response:
        tag = f'"{hash(self.body)}"'
        known = request.headers.get("If-None-Match", "")
        status = 304 if self.status == 200 and known == tag else self.status
        self.asked.append((status, known))
        await be_slow(self.pause)
        headers = {"ETag": tag, "Location": "https://127.0.0.1:1/"}
        return web.Response(
            status=status, body=b"" if status == 304 else self.body, headers=headers
        )


@contextlib.asynccontextmanager
async def key_server(directory: Path) -> AsyncIterator[KeyServer]:
    """Serve on some port of this machine."""
    files = pki.Pki(directory)
    files.ensure()
    pair = files.leaf(pki.APISERVER)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)
    application = web.Application()
    server = KeyServer("", files.ca().cert.read_text())
    application.router.add_get("/keys", server.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    server.url = f"https://127.0.0.1:{runner.addresses[0][1]}/keys"
    try:
        yield server
    finally:
        await runner.cleanup()
