"""A provider: what it says of itself, its keys, and the tokens that it gives for codes."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote_plus

import aiohttp
import msgspec

from gatehouse.sidecars.authenticator import id_tokens
from gatehouse.sidecars.authenticator.config import Party
from gatehouse.sidecars.authenticator.id_tokens import DeniedError, UnknownKeyError

KEEP_SECONDS = 3600.0
"""How long metadata and keys are used before they are fetched again."""

PAUSE_FIRST, PAUSE_MAX = 1.0, 30.0
"""Seconds between attempts to fetch what could not be had; doubled each time."""

MOST_BYTES = 1 << 20

TIMEOUT = aiohttp.ClientTimeout(total=10.0, connect=5.0)

_Value = TypeVar("_Value")


class UnavailableError(Exception):
    """The provider does not answer as it must; the message says how."""


class Metadata(msgspec.Struct, frozen=True):
    """What is needed of a provider's metadata (OpenID Connect Discovery, section 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class Tokens(msgspec.Struct, frozen=True):
    """What a provider gives (RFC 6749, section 5.1)."""

    id_token: str = ""
    refresh_token: str = ""
    expires_in: float = 0.0


class Fetched(Generic[_Value]):
    """Something that is fetched when it is needed, and kept for a while."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[_Value]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._turn = asyncio.Lock()
        self._value: _Value | None = None
        self._until = 0.0
        self._again = 0.0
        self._pause = 0.0
        self._error = ""

    async def get(self) -> _Value:
        """Give it; an old one where no new one can be had. Raises UnavailableError."""
        async with self._turn:
            if self._value is None or self._clock() >= self._until:
                await self._renew()
            if self._value is None:
                raise UnavailableError(self._error)
            return self._value

    async def newer(self, old: _Value) -> _Value:
        """Give one that was fetched after ``old``. Raises UnavailableError."""
        if self._value is old:
            self._until = 0.0
        return await self.get()

    async def _renew(self) -> None:
        if self._clock() < self._again:
            return
        try:
            self._value = await self._fetch()
        except UnavailableError as error:
            self._error = str(error)
            self._pause = min(max(2 * self._pause, PAUSE_FIRST), PAUSE_MAX)
            self._again = self._clock() + self._pause
        else:
            self._pause = 0.0
            self._until = self._clock() + KEEP_SECONDS


class Provider:
    """The one that a party relies on."""

    def __init__(
        self, party: Party, secret: str, trust: ssl.SSLContext, http: aiohttp.ClientSession
    ) -> None:
        self._party = party
        self._secret = secret
        self._trust = trust
        self._http = http
        self._metadata = Fetched(self._fetch_metadata)
        self._keys = Fetched(self._fetch_keys)

    async def metadata(self) -> Metadata:
        """Give what it says of itself. Raises UnavailableError."""
        return await self._metadata.get()

    async def tokens(self, **form: str) -> Tokens:
        """Have tokens given for a code or a refresh token.

        Raises DeniedError if it gives none, UnavailableError if it does not answer.
        """
        metadata = await self.metadata()
        party, headers = self._party, {"Accept": "application/json"}
        if "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
            pair = quote_plus(party.client_id), quote_plus(self._secret)
            headers["Authorization"] = aiohttp.BasicAuth(*pair).encode()
        else:
            form |= {"client_id": party.client_id, "client_secret": self._secret}
        status, body = await self._ask("POST", metadata.token_endpoint, headers, form)
        if status in (400, 401, 403):
            raise DeniedError(f"the provider gives no tokens: {_said(body)}")
        return _decoded(status, body, Tokens, metadata.token_endpoint)

    async def verified(self, token: str, nonce: str | None) -> Mapping[str, Any]:
        """Give the claims of an ID token; ``nonce`` None: it need not have one.

        Raises DeniedError, UnavailableError.
        """
        keys = await self._keys.get()
        try:
            return id_tokens.verify_id_token(self._party, token, keys, nonce)
        except UnknownKeyError:
            # It may have begun to sign with another key.
            return id_tokens.verify_id_token(
                self._party, token, await self._keys.newer(keys), nonce
            )

    async def _fetch_metadata(self) -> Metadata:
        url = self._party.metadata_url
        found = _decoded(*await self._ask("GET", url), Metadata, url)
        if found.issuer != self._party.issuer:
            raise UnavailableError(f"{url}: the issuer is {found.issuer!r}")
        for endpoint in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
            if not endpoint.startswith("https://"):
                raise UnavailableError(f"{url}: {endpoint!r} is no URL of https")
        return found

    async def _fetch_keys(self) -> list[Mapping[str, Any]]:
        url = (await self.metadata()).jwks_uri
        found = _decoded(*await self._ask("GET", url), dict[str, Any], url).get("keys")
        if not isinstance(found, list):
            raise UnavailableError(f"{url}: is no JSON Web Key Set")
        return [each for each in found if isinstance(each, dict)]

    async def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        body = b""
        try:
            async with self._http.request(
                method, url, headers=headers, data=form,
                ssl=self._trust, allow_redirects=False, timeout=TIMEOUT,
            ) as response:  # fmt: skip
                async for chunk in response.content.iter_chunked(1 << 16):
                    body += chunk
                    if len(body) > MOST_BYTES:
                        raise UnavailableError(f"{url}: an answer of more than {MOST_BYTES} bytes")
                return response.status, body
        except (TimeoutError, aiohttp.ClientError, ValueError, OSError) as error:
            raise UnavailableError(f"{url}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Say what is wrong in the same words each time, so that it is said once."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = error.certificate_error
        if isinstance(found, ssl.SSLCertVerificationError):
            return f"the certificate is not trusted: {found.verify_message}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return (error.os_error.strerror or str(error.os_error)).lower()
    return str(error) or f"no answer in time ({type(error).__name__})"


def _decoded(status: int, body: bytes, kind: type[_Value], url: str) -> _Value:
    if status != 200:
        raise UnavailableError(f"{url}: answered {status}")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise UnavailableError(f"{url}: {error}") from error


def _said(body: bytes) -> str:
    return repr(body[:200].decode(errors="replace"))
