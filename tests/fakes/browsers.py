"""Browsers of users who log in at an OpenID Connect provider."""

from __future__ import annotations

import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from fakes.installation import PORT
from fakes.oidc_provider import OidcProvider
from fakes.patience import until


def secret(name: str, key: str, content: str) -> dict[str, Any]:
    data = {key: base64.b64encode(content.encode()).decode()}
    return {"kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "data": data}


class Browser:
    """Follows redirections and keeps cookies, as long as it is asked to."""

    def __init__(self, where: str, provider: OidcProvider) -> None:
        self.origin = f"http://{where}:{PORT}"
        self._tls = ssl.create_default_context(cadata=provider.authority)
        self.jar = aiohttp.CookieJar(unsafe=True)
        self._http = aiohttp.ClientSession(cookie_jar=self.jar)

    async def get(self, path: str, **more: Any) -> tuple[int, dict[str, Any]]:
        """Return the status after redirections, and the request as the echo server received it."""
        method = more.pop("method", "GET")
        async with self._http.request(
            method, f"{self.origin}{path}", ssl=self._tls, **more
        ) as response:
            is_json = response.content_type == "application/json"
            return response.status, await response.json() if is_json else {}

    async def sent(self, where: str) -> str:
        """Return the target of one redirection."""
        url = f"{self.origin}{where}" if where.startswith("/") else where
        async with self._http.get(url, ssl=self._tls, allow_redirects=False) as response:
            return response.headers["Location"]

    async def header(self, path: str, name: str, mode: str) -> str:
        """Return a header of the response to a request in a mode of ``fetch``."""
        headers = {"Sec-Fetch-Mode": mode}
        async with self._http.get(
            f"{self.origin}{path}", headers=headers, allow_redirects=False
        ) as response:
            return ", ".join(response.headers.getall(name, ()))

    def cookies(self) -> set[str]:
        return {cookie.key for cookie in self.jar}

    async def close(self) -> None:
        await self._http.close()


@contextlib.asynccontextmanager
async def browsing(where: str, provider: OidcProvider) -> AsyncIterator[Browser]:
    browser = Browser(where, provider)
    try:
        yield browser
    finally:
        await browser.close()


async def ready(browser: Browser, path: str = "/account") -> None:
    """Wait until a login leads to the provider of this test."""

    async def reached() -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            return (await browser.get(path))[0] == 200
        return False

    await until(reached)
