"""Client of the REST API of one NGINX Plus host."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from gatehouse.compiler.ir.load_balancing import Host, HostTls
from gatehouse.dataplane.nginx_plus import DEFAULTS, PlusServer
from gatehouse.dataplane.upstream_name import UpstreamContext, UpstreamName
from gatehouse.transports.nginx_plus.resolver import Resolver

T = TypeVar("T")

VERSIONS = range(4, 10)
"""Supported versions of the API, which share the format of servers. The newest common one is
used."""


MAX_ANSWER_BYTES = 32 << 20
"""Maximum size of a response in bytes. A list of 100,000 servers is smaller. The limit protects the
memory from arbitrary URLs."""


class ServerEntry(PlusServer, frozen=True):
    """A server as listed by the host."""

    id: int = -1
    parent: int | None = None
    """If set, the server was resolved from the name of the server with this ID, and exists as long
    as it."""


class Peer(msgspec.Struct, frozen=True, order=True):
    """A server in the overview of all upstreams, which has few of its parameters."""

    id: int
    server: str
    weight: int = 1
    backup: bool = False
    state: str = "up"

    @property
    def identity(self) -> tuple[int, str, int, bool, bool, bool]:
        """Return what must equal an observed server."""
        states = (self.state == "down", self.state == "draining")
        return (self.id, self.server, self.weight, self.backup, *states)


class _Peers(msgspec.Struct):
    peers: list[Peer]


class NginxInfo(msgspec.Struct, frozen=True):
    """A host's description of its NGINX. A change means that upstreams were recreated."""

    version: str = ""
    build: str = ""
    generation: int = 0
    load_timestamp: str = ""
    ppid: int = 0

    @property
    def server(self) -> str:
        """Server version and build for display."""
        return " ".join(part for part in (f"nginx/{self.version}", self.build) if part)


class _ErrorBody(msgspec.Struct):
    status: int = 0
    text: str = ""
    code: str = ""


class _Error(msgspec.Struct):
    error: _ErrorBody


class PlusHostError(Exception):
    """A request that failed, or may have failed."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(" ".join(part for part in (str(status or ""), code) if part) + f": {text}")
        self.status, self.code, self.text = status, code, text
        """``status`` is 0 without a response; ``code`` is empty if it was not an error of the
        API."""

    def __str__(self) -> str:
        return str(self.args[0]).removeprefix(": ")

    @property
    def of_host(self) -> bool:
        """True if other requests to this host would fail too."""
        return not self.code or self.status >= 500 or self.of_api

    @property
    def of_api(self) -> bool:
        """True if every request of this kind would fail, whatever its upstream."""
        return self.code in ("UnknownVersion", _READ_ONLY)


_READ_ONLY = "MethodDisabled"


class PlusClient:
    """Client of one host. Must be closed with :meth:`close`."""

    def __init__(self, host: Host, timeout: float) -> None:
        """Raises ssl.SSLError if a certificate is invalid."""
        self._host = host
        self.api = 0
        """API version in use."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """Number of requests by method and outcome: a status, or ``none`` without a response."""
        headers = {"Accept": "application/json", "User-Agent": "gatehouse"}
        if host.authorization.reveal():
            headers["Authorization"] = host.authorization.reveal().decode("ascii")
        self._tls_context = _context(host.tls) if host.url.startswith("https:") else None
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._resolver = Resolver()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=30.0, resolver=self._resolver
            ),
            headers=headers,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self._resolver.close()

    async def negotiate(self) -> int:
        """Select the newest common API version. Raises PlusHostError if there is none."""
        known = await self._call("GET", self._host.url, list[int])
        both = set(known) & set(VERSIONS)
        if not both:
            supported = f"{VERSIONS[0]} to {VERSIONS[-1]}"
            raise PlusHostError(0, "", f"API versions {known} are not supported, only {supported}")
        self.api = max(both)
        return self.api

    async def about(self) -> NginxInfo:
        """Return the host's description. Raises PlusHostError."""
        return await self._call("GET", self._url("nginx"), NginxInfo)

    async def servers(self, name: UpstreamName) -> list[ServerEntry]:
        """List the servers of an upstream. Raises PlusHostError."""
        servers = await self._call("GET", self._servers(name), list[ServerEntry])
        return [server for server in servers if server.parent is None]

    async def peers(self, context: UpstreamContext) -> dict[str, list[Peer]]:
        """List the peers of all upstreams of a context. Raises PlusHostError."""
        url = self._url(f"{context}/upstreams?fields=peers")
        upstreams = await self._call("GET", url, dict[str, _Peers])
        return {name: upstream.peers for name, upstream in upstreams.items()}

    async def add(self, name: UpstreamName, server: PlusServer) -> ServerEntry:
        """Add a server; default parameters are omitted. Raises PlusHostError."""
        fields = {key: getattr(server, key) for key in PlusServer.__struct_fields__}
        body = {key: value for key, value in fields.items() if DEFAULTS.get(key) != value}
        return await self._call("POST", self._servers(name), ServerEntry, body)

    async def change(
        self, name: UpstreamName, number: int, fields: Mapping[str, Any]
    ) -> ServerEntry:
        """Change parameters of a server. Raises PlusHostError."""
        return await self._call("PATCH", f"{self._servers(name)}/{number}", ServerEntry, fields)

    async def remove(self, name: UpstreamName, number: int) -> None:
        """Remove a server; succeeds if it is already gone. Raises PlusHostError."""
        try:
            await self._call("DELETE", f"{self._servers(name)}/{number}", msgspec.Raw)
        except PlusHostError as error:
            if error.code != "UpstreamServerNotFound":
                raise

    def _url(self, path: str) -> str:
        return f"{self._host.url}/{self.api}/{path}"

    def _servers(self, name: UpstreamName) -> str:
        return self._url(f"{name.context}/upstreams/{quote(name.name, safe='')}/servers")

    async def _call(self, method: str, url: str, kind: type[T], body: Any = None) -> T:
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        outcome = "none"
        try:
            async with self._session.request(
                method,
                url,
                data=data,
                headers=headers,
                timeout=self._timeout,
                allow_redirects=False,
                ssl=self._tls_context or True,
                server_hostname=self._host.tls.server_name or None if self._tls_context else None,
            ) as response:
                content = await _body(response)
                outcome = str(response.status)
                return _read(response.status, content, kind)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise PlusHostError(0, "", _reason(error, self._timeout.total)) from error
        finally:
            self.calls[method, outcome] += 1


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Read a response body. Raises PlusHostError if it is too large."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            text = f"response is larger than {MAX_ANSWER_BYTES >> 20} MiB"
            raise PlusHostError(response.status, "", text)
    return bytes(body)


def _read(status: int, content: bytes, kind: type[T]) -> T:
    if not 200 <= status < 300:
        try:
            error = msgspec.json.decode(content, type=_Error).error
        except msgspec.DecodeError:
            text = content[:200].decode("utf-8", "replace").strip()
            raise PlusHostError(
                status, "", f"response {text!r} is not an error of the API"
            ) from None
        raise PlusHostError(status, error.code, error.text)
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as invalid:
        raise PlusHostError(status, "", f"invalid response: {invalid}") from invalid


def _reason(error: Exception, seconds: float | None) -> str:
    if isinstance(error, TimeoutError):
        return f"no response within {seconds:g} s"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"certificate verification failed: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"cannot resolve the hostname: {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"cannot connect: {os.strerror(number) if number else error.os_error}"
    return str(error) or type(error).__name__


def _context(tls: HostTls) -> ssl.SSLContext:
    if tls.verify:
        ca_certificates = tls.trust.decode("ascii", "replace")
        context = ssl.create_default_context(cadata=ca_certificates or None)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate:
        # OpenSSL reads a key only from a file. It is private and deleted at once.
        with tempfile.TemporaryDirectory(prefix="gatehouse-") as directory:
            path = Path(directory) / "client.pem"
            path.touch(mode=0o600)
            path.write_bytes(tls.certificate + b"\n" + tls.key.reveal())
            context.load_cert_chain(path)
    return context
