"""HTTP connections to an API server: TLS, tokens, timeouts, and errors as ApiError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
import structlog
import yarl

from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import CredentialError
from gatehouse.kube.errors import ApiError, Unauthorized, Unavailable, error_from_response
from gatehouse.kube.sockets import Sockets
from kube_base.runtime.time_limits import scaled

log = structlog.get_logger("gatehouse.kube")

REQUEST_TIMEOUT_SECONDS = scaled(30.0)
"""Timeout in seconds of a request except a watch. A list of 5,000 routes takes less than 1 s."""

API_CONNECT_TIMEOUT_SECONDS = scaled(10.0)
"""Timeout in seconds of a connection to the server, including TLS."""

Query = Mapping[str, str] | Sequence[tuple[str, str]]
"""Query of a URL. A sequence may have a name several times."""


class Connection:
    """A pool of connections to one API server."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._session: aiohttp.ClientSession | None = None
        self._sockets = Sockets()

    @property
    def server(self) -> str:
        """Return the URL of the API server."""
        return self._configuration.server

    def start(self) -> None:
        """Create the pool. Raises config.ConfigError if TLS credentials are invalid."""
        context = self._configuration.ssl_context()
        # No limit: every watch holds one connection for as long as it runs.
        connector = aiohttp.TCPConnector(
            limit=0, ssl=context if context else True, socket_factory=self._sockets
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": "gatehouse"},
            read_bufsize=2**18,
        )

    async def close(self) -> None:
        """Close all connections, including those of running watches and those that are closing."""
        if self._session is not None:
            await self._session.close()
            await self._sockets.close()
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        """Send a request. Return the body of a 2xx response; raise the ApiError of any other."""
        limits = aiohttp.ClientTimeout(
            total=REQUEST_TIMEOUT_SECONDS, sock_connect=API_CONNECT_TIMEOUT_SECONDS
        )
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
        query: Query | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> aiohttp.ClientResponse:
        """Send a request. Return a 2xx response; raise the ApiError of any other.

        After 401 the token is renewed and the request repeated once.
        """
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

    async def open_websocket(
        self, path: str, *, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket, whose messages have any size. Raises ApiError if it is rejected."""
        configuration = self._configuration
        try:
            token = await configuration.tokens.token()
            return await self._opened().ws_connect(
                yarl.URL(configuration.server + path, encoded=True).with_query(query),
                protocols=protocols,
                headers={"Authorization": f"Bearer {token}"} if token else None,
                proxy=configuration.proxy or None,
                server_hostname=configuration.server_name or None,
                max_msg_size=0,
            )
        except CredentialError as error:
            raise Unauthorized(0, "NoCredentials", str(error)) from error
        except aiohttp.WSServerHandshakeError as error:
            raise await self._handshake_error(path, query, error) from error
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(configuration.server, error) from error

    async def _handshake_error(
        self, path: str, query: Sequence[tuple[str, str]], error: aiohttp.WSServerHandshakeError
    ) -> ApiError:
        """Return the reason why the server rejected a WebSocket.

        aiohttp drops the body, which has the reason. The server rejects the same request without
        the upgrade for the same reason, if it rejects it with the same status.
        """
        try:
            await self.request("GET", path, query=query)
        except ApiError as rejection:
            if rejection.status == error.status:
                return rejection
        return error_from_response(error.status, error.headers or {}, b"")

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("client is not open: use it with 'async with'")
        return self._session

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> aiohttp.ClientResponse:
        session, configuration = self._opened(), self._configuration
        try:
            token = await configuration.tokens.token()
            response = await session.request(
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


def unreachable(server: str, error: Exception) -> Unavailable:
    """Return the error for a failed or broken connection."""
    # Timeouts of aiohttp have no text.
    return Unavailable(0, "Unreachable", f"{server}: {error or type(error).__name__}")
