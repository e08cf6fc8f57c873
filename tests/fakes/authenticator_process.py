"""An authenticator's process, and a browser with an NGINX before it, as far as it can tell."""

from __future__ import annotations

import contextlib
import secrets
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import msgspec
from msgspec.structs import replace

from fakes import patience
from fakes.oidc_provider import CLIENT, SECRET, OidcProvider
from gatehouse.sidecars.authenticator import config
from gatehouse.sidecars.authenticator.config import Party
from gatehouse.sidecars.base import control

ORIGIN = "https://shop.example"
LOG = "authenticator.log"


class AuthenticatorResponse(msgspec.Struct):
    """Response of the authenticator."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def location(self) -> str:
        return self.headers["Location"]


class AuthenticatorProcess:
    """An authenticator as the agent runs it, and one browser's cookies."""

    def __init__(
        self,
        home: Path,
        http: aiohttp.ClientSession,
        process: subprocess.Popen[bytes],
        linger: float,
    ) -> None:
        self.home = home
        self.cookies: dict[str, str] = {}
        self.set: list[str] = []
        """Cookies of the last response."""
        self.process = process
        self._http = http
        self._linger = linger
        self._prefix = secrets.token_hex(4)
        self._logged = len(log_of(home))

    def start(self) -> None:
        self.process = start(self.home, self._linger)

    @property
    def log(self) -> str:
        """Return the entries since this browser was made."""
        return log_of(self.home)[self._logged :]

    def configuration(
        self, *parties: Party, secret: str = SECRET, trust: str = "", revoked: str = ""
    ) -> Path:
        directory = Path(tempfile.mkdtemp(dir=self.home))
        (directory / "gatehouse").mkdir()
        (directory / "secret").write_text(secret)
        (directory / "trust.pem").write_text(trust)
        (directory / "revoked.pem").write_text(revoked)
        (directory / config.AUTHENTICATORS_FILE).write_bytes(
            config.encode_parties([replace(party, name=self._own(party.name)) for party in parties])
        )
        return directory

    def _own(self, name: str) -> str:
        """Return the name of a party in the process, which knows a party by its name alone."""
        return f"{self._prefix}-{name}"

    def path(self, name: str, action: str) -> str:
        """Return the path of an action of a party."""
        return f"/{self._own(name)}/{action}"

    async def serve(self, *configurations: Path) -> str:
        async with patience.limit():
            while True:
                assert self.process.poll() is None, self.log
                with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                    return await control.send_request(
                        self.home / config.AUTHENTICATOR_SOCKETS, configurations
                    )
                await patience.pause()

    async def serving(self, provider: OidcProvider, **fields: Any) -> Party:
        party = relying_party(provider, **fields)
        configuration = self.configuration(party, trust=provider.authority)
        assert await self.serve(configuration) == ""
        return party

    async def ask(
        self, action: str, uri: str = "/", *, name: str = "p", method: str = "GET", **values: str
    ) -> AuthenticatorResponse:
        """Ask as NGINX does, with the browser's cookies, and keep what it sets."""
        headers = {
            "Cookie": "; ".join(f"{key}={value}" for key, value in self.cookies.items()),
            "X-Origin": ORIGIN, "X-Uri": uri,
            **{f"X-{key.capitalize()}": value for key, value in values.items()},
        }  # fmt: skip
        query = urlsplit(uri).query if action in ("callback", "ended") else ""
        url = f"http://authenticator{self.path(name, action)}?{query}"
        async with self._http.request(
            method, url, headers=headers, allow_redirects=False
        ) as response:
            self.set = response.headers.getall("Set-Cookie", [])
            result = [value for key, value in response.headers.items() if key.startswith("X-Set")]
            for cookie in (*self.set, *result):
                self._keep(cookie)
            return AuthenticatorResponse(
                response.status, dict(response.headers), await response.text()
            )

    def _keep(self, text: str) -> None:
        for name, morsel in SimpleCookie(text).items():
            if morsel["max-age"] == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = morsel.value

    async def at_provider(self, provider: OidcProvider, location: str) -> str:
        """Follow a redirection to the provider. Return the target of its redirection."""
        context = ssl.create_default_context(cadata=provider.authority)
        async with (
            aiohttp.ClientSession() as http,
            http.get(location, ssl=context, allow_redirects=False) as response,
        ):
            assert response.status == 302
            return response.headers["Location"]

    async def log_in(self, provider: OidcProvider, uri: str = "/") -> AuthenticatorResponse:
        """Log in as a browser does. Return the response after the provider's redirection."""
        begun = await self.ask("login", uri)
        assert begun.status == 302
        back = await self.at_provider(provider, begun.location)
        return await self.ask("callback", back.removeprefix(ORIGIN))


def relying_party(provider: OidcProvider, **fields: Any) -> Party:
    known: dict[str, Any] = {
        "name": "p",
        "owner": "shop/users",
        "issuer": provider.issuer,
        "metadata_url": f"{provider.issuer}/.well-known/openid-configuration",
        "client_id": CLIENT,
        "secret": "secret",
        "trust": "trust.pem",
        "callback": "/callback",
        "cookie": "SESSION",
        "timeout": 60.0,
    }
    return Party(**known | fields)


def start(home: Path, linger: float = 60.0) -> subprocess.Popen[bytes]:
    """Start an authenticator that has its sockets and its log in a directory."""
    sockets = home / config.AUTHENTICATOR_SOCKETS
    sockets.mkdir(exist_ok=True)
    command = [sys.executable, "-P", "-m", "gatehouse.sidecars", "authenticator"]
    with (home / LOG).open("ab") as output:
        return subprocess.Popen([*command, str(sockets), str(linger)], stderr=output)


def log_of(home: Path) -> str:
    """Return the log of an authenticator."""
    return (home / LOG).read_text()


@contextlib.asynccontextmanager
async def browsing(
    home: Path, process: subprocess.Popen[bytes], linger: float = 60.0
) -> AsyncIterator[AuthenticatorProcess]:
    """Yield a new browser of a process, which others have used before."""
    path = str(home / config.REQUESTS_SOCKET)
    async with aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(path), cookie_jar=aiohttp.DummyCookieJar()
    ) as http:
        yield AuthenticatorProcess(home, http, process, linger)


@contextlib.asynccontextmanager
async def running(home: Path, linger: float = 60.0) -> AsyncIterator[AuthenticatorProcess]:
    async with browsing(home, start(home, linger), linger) as authenticator:
        try:
            yield authenticator
        finally:
            authenticator.process.kill()
            authenticator.process.wait()


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))
