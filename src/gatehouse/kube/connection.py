"""The HTTP side of talking to an API server: TLS, tokens, timeouts, failures as ApiError."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec
import structlog
import yarl

from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import CredentialError
from gatehouse.kube.errors import Unauthorized, Unavailable, error_from_response

log = structlog.get_logger("gatehouse.kube")

REQUEST_TIMEOUT = 30.0
"""Seconds for one request that is no watch; a list of 5,000 routes takes under one."""

CONNECT_TIMEOUT = 10.0
"""Seconds to reach the server, TLS included."""


class Connection:
    """A pool of connections to one API server."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._session: aiohttp.ClientSession | None = None

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._configuration.server

    def start(self) -> None:
        """Make the pool; raises config.ConfigError where the TLS material is no good."""
        context = self._configuration.ssl_context()
        # No limit: every watch holds one connection for as long as it runs.
        connector = aiohttp.TCPConnector(
            limit=0, ssl=context if context else True, socket_factory=_socket
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": "gatehouse"},
            read_bufsize=2**18,
        )

    async def close(self) -> None:
        """Close every connection, running watches included."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        """Send and give the body of a 2xx answer; any other raises its ApiError."""
        limits = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
        response = await self.open(
            method,
            path,
            query=query,
            body=body,
            content_type=content_type,
            accept=accept,
            timeout=limits,
        )
        try:
            return await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(self.server, error) from error
        finally:
            response.release()

    async def open(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 (per socket operation, not a deadline)
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> aiohttp.ClientResponse:
        """Send; gives a response with a 2xx status. A refused token is replaced once."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Accept": accept} | ({} if body is None else {"Content-Type": content_type})
        for attempt in (1, 2):
            response = await self._send(method, path, query or {}, data, headers, timeout)
            if response.status < 300:
                return response
            try:
                text = await response.read()
            except (aiohttp.ClientError, OSError) as error:
                raise unreachable(self.server, error) from error
            if response.status != 401 or attempt == 2:
                break
            self._configuration.tokens.invalidate()
        raise error_from_response(response.status, response.headers, text)

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        data: bytes | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is not open: use it with 'async with'")
        configuration = self._configuration
        try:
            token = await configuration.tokens.token()
            response = await self._session.request(
                method,
                yarl.URL(configuration.server + path, encoded=True).with_query(query),
                data=data,
                headers={**headers, "Authorization": f"Bearer {token}"} if token else headers,
                timeout=timeout,
                proxy=configuration.proxy or None,
                server_hostname=configuration.server_name or None,
                allow_redirects=False,
            )
        except CredentialError as error:
            raise Unauthorized(0, "NoCredentials", str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(configuration.server, error) from error
        for warning in response.headers.getall("Warning", ()):
            log.warning("server warning", method=method, path=path, warning=warning)
        return response


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Make a socket that notices within a minute that the other side is gone without a word.

    A watch may be silent for minutes, so that no timeout of ours can tell it from a dead one.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        # Not every system lets these be set; its own defaults are hours, but better than none.
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def unreachable(server: str, error: Exception) -> Unavailable:
    """Make the error for a connection that failed or broke."""
    # aiohttp's own timeouts carry no text.
    return Unavailable(0, "Unreachable", f"{server}: {error or type(error).__name__}")
