"""OpenID provider: its metadata, its keys, and token requests."""

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
from kube_base.runtime.backoff import Backoff, BackoffPolicy

CACHE_SECONDS = 3600.0
"""Time in seconds after which metadata and keys are fetched again."""

_RETRIES = BackoffPolicy(first=1.0, maximum=30.0)
"""Back-off after a failed fetch."""

_MAX_RESPONSE_BYTES = 1 << 20

_TIMEOUT = aiohttp.ClientTimeout(total=10.0, connect=5.0)

_Value = TypeVar("_Value")


class ProviderUnavailableError(Exception):
    """The provider is unreachable or its response is invalid. The message contains the reason."""


class ProviderMetadata(msgspec.Struct, frozen=True):
    """The used fields of a provider's metadata (OpenID Connect Discovery, section 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class TokenResponse(msgspec.Struct, frozen=True):
    """Token response (RFC 6749, section 5.1)."""

    id_token: str = ""
    refresh_token: str = ""
    expires_in: float = 0.0


class CachedValue(Generic[_Value]):
    """A value that is fetched on demand and cached."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[_Value]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = asyncio.Lock()
        self._value: _Value | None = None
        self._until = 0.0
        self._retry_at = 0.0
        self._backoff = Backoff(_RETRIES)
        self._error = ""

    async def get(self) -> _Value:
        """Return the value; a stale one if it cannot be fetched.

        Raises ProviderUnavailableError if there is none.
        """
        async with self._lock:
            if self._value is None or self._clock() >= self._until:
                await self._refetch()
            if self._value is None:
                raise ProviderUnavailableError(self._error)
            return self._value

    async def newer(self, old: _Value) -> _Value:
        """Return a value fetched after ``old``. Raises ProviderUnavailableError."""
        if self._value is old:
            self._until = 0.0
        return await self.get()

    async def _refetch(self) -> None:
        if self._clock() < self._retry_at:
            return
        try:
            self._value = await self._fetch()
        except ProviderUnavailableError as error:
            self._error = str(error)
            self._retry_at = self._clock() + self._backoff.failed()
        else:
            self._backoff.succeeded()
            self._until = self._clock() + CACHE_SECONDS


class Provider:
    """The OpenID provider of a party."""

    def __init__(
        self, party: Party, secret: str, trust: ssl.SSLContext, http: aiohttp.ClientSession
    ) -> None:
        self._party = party
        self._secret = secret
        self._trust = trust
        self._http = http
        self._metadata = CachedValue(self._fetch_metadata)
        self._keys = CachedValue(self._fetch_keys)

    async def metadata(self) -> ProviderMetadata:
        """Return the provider's metadata. Raises ProviderUnavailableError."""
        return await self._metadata.get()

    async def tokens(self, **form: str) -> TokenResponse:
        """Request tokens for a code or a refresh token.

        Raises DeniedError if the provider rejects the request, and ProviderUnavailableError if it
        does not respond.
        """
        metadata = await self.metadata()
        party, headers = self._party, {"Accept": "application/json"}
        if "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
            pair = quote_plus(party.client_id), quote_plus(self._secret)
            headers["Authorization"] = aiohttp.BasicAuth(*pair).encode()
        else:
            form |= {"client_id": party.client_id, "client_secret": self._secret}
        status, body = await self._request("POST", metadata.token_endpoint, headers, form)
        if status in (400, 401, 403):
            raise DeniedError(f"token request rejected by the provider: {_excerpt(body)}")
        return _decoded(status, body, TokenResponse, metadata.token_endpoint)

    async def verified(self, token: str, nonce: str | None) -> Mapping[str, Any]:
        """Return the claims of a valid ID token. ``nonce`` None: a nonce is not required.

        Raises DeniedError, ProviderUnavailableError.
        """
        keys = await self._keys.get()
        try:
            return id_tokens.verify_id_token(self._party, token, keys, nonce)
        except UnknownKeyError:
            # The provider may have rotated its keys.
            return id_tokens.verify_id_token(
                self._party, token, await self._keys.newer(keys), nonce
            )

    async def _fetch_metadata(self) -> ProviderMetadata:
        url = self._party.metadata_url
        metadata = _decoded(*await self._request("GET", url), ProviderMetadata, url)
        if metadata.issuer != self._party.issuer:
            raise ProviderUnavailableError(f"{url}: the issuer is {metadata.issuer!r}")
        endpoints = (metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri)
        for endpoint in endpoints:
            if not endpoint.startswith("https://"):
                raise ProviderUnavailableError(f"{url}: {endpoint!r} must be an https URL")
        return metadata

    async def _fetch_keys(self) -> list[Mapping[str, Any]]:
        url = (await self.metadata()).jwks_uri
        keys = _decoded(*await self._request("GET", url), dict[str, Any], url).get("keys")
        if not isinstance(keys, list):
            raise ProviderUnavailableError(f"{url}: invalid JSON Web Key Set")
        return [key for key in keys if isinstance(key, dict)]

    async def _request(
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
                ssl=self._trust, allow_redirects=False, timeout=_TIMEOUT,
            ) as response:  # fmt: skip
                async for chunk in response.content.iter_chunked(1 << 16):
                    body += chunk
                    if len(body) > _MAX_RESPONSE_BYTES:
                        raise ProviderUnavailableError(
                            f"{url}: response is larger than {_MAX_RESPONSE_BYTES} bytes"
                        )
                return response.status, body
        except (TimeoutError, aiohttp.ClientError, ValueError, OSError) as error:
            raise ProviderUnavailableError(f"{url}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return a reason that is equal for equal errors, so that it is logged once."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate is not trusted: {cause.verify_message}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return (error.os_error.strerror or str(error.os_error)).lower()
    return str(error) or f"no response in time ({type(error).__name__})"


def _decoded(status: int, body: bytes, kind: type[_Value], url: str) -> _Value:
    if status != 200:
        raise ProviderUnavailableError(f"{url}: unexpected status {status}")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProviderUnavailableError(f"{url}: {error}") from error


def _excerpt(body: bytes) -> str:
    return repr(body[:200].decode(errors="replace"))
