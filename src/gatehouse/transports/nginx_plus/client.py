"""The REST API of one NGINX Plus."""

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

from gatehouse.compiler.ir.load_balancing import Host, Tls
from gatehouse.dataplane.nginx_plus import DEFAULTS, Server
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.transports.nginx_plus.resolver import Resolver

T = TypeVar("T")

VERSIONS = range(4, 10)
"""The versions of the API whose servers are as we write them; the newest that both know is used."""


ANSWER_MAX = 32 << 20
"""Bytes; a list of 100,000 servers is shorter. Whatever is at a URL is not to fill our memory."""


class ServerEntry(Server, frozen=True):
    """A server as the host lists it."""

    id: int = -1
    parent: int | None = None
    """Given: found by name for the server of this id, with which it comes and goes."""


class NginxInfo(msgspec.Struct, frozen=True):
    """What a host says of itself; another one of these is another life of its upstreams."""

    version: str = ""
    build: str = ""
    generation: int = 0
    load_timestamp: str = ""
    ppid: int = 0

    @property
    def server(self) -> str:
        """For people."""
        return " ".join(part for part in (f"nginx/{self.version}", self.build) if part)


class _ErrorBody(msgspec.Struct):
    status: int = 0
    text: str = ""
    code: str = ""


class _Error(msgspec.Struct):
    error: _ErrorBody


class PlusError(Exception):
    """A request that was not carried out, or may not have been."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(" ".join(part for part in (str(status or ""), code) if part) + f": {text}")
        self.status, self.code, self.text = status, code, text
        """``status`` 0: there was no answer; ``code`` empty: it was not one of the API."""

    def __str__(self) -> str:
        return str(self.args[0]).removeprefix(": ")

    @property
    def of_host(self) -> bool:
        """Whether other requests would fare no better."""
        return not self.code or self.status >= 500 or self.of_api

    @property
    def of_api(self) -> bool:
        """Whether every such request fares no better, whatever it is about."""
        return self.code in ("UnknownVersion", _READ_ONLY)


_READ_ONLY = "MethodDisabled"


class Client:
    """Speaks to one host; use :meth:`close` at the end."""

    def __init__(self, host: Host, timeout: float) -> None:
        """Raises ssl.SSLError for certificates that are none."""
        self._host = host
        self.api = 0
        """The version in use."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """Requests so far by method and outcome: a status, or ``none`` for no answer."""
        headers = {"Accept": "application/json", "User-Agent": "gatehouse"}
        if host.authorization.reveal():
            headers["Authorization"] = host.authorization.reveal().decode("ascii")
        self._trust = _context(host.tls) if host.url.startswith("https:") else None
        self._limits = aiohttp.ClientTimeout(total=timeout)
        self._resolver = Resolver()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=30.0, resolver=self._resolver
            ),
            headers=headers,
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()
        await self._resolver.close()

    async def negotiate(self) -> int:
        """Settle on the newest version that both sides know; raises PlusError."""
        known = await self._call("GET", self._host.url, list[int])
        both = set(known) & set(VERSIONS)
        if not both:
            ours = f"{VERSIONS[0]} to {VERSIONS[-1]}"
            raise PlusError(0, "", f"its API has versions {known}, none of {ours}")
        self.api = max(both)
        return self.api

    async def about(self) -> NginxInfo:
        """Ask who it is; raises PlusError."""
        return await self._call("GET", self._url("nginx"), NginxInfo)

    async def servers(self, name: UpstreamName) -> list[ServerEntry]:
        """List the servers of an upstream; raises PlusError."""
        found = await self._call("GET", self._servers(name), list[ServerEntry])
        return [each for each in found if each.parent is None]

    async def add(self, name: UpstreamName, server: Server) -> ServerEntry:
        """Add a server, of whose parameters the defaults are not said; raises PlusError."""
        fields = {key: getattr(server, key) for key in Server.__struct_fields__}
        body = {key: value for key, value in fields.items() if DEFAULTS.get(key) != value}
        return await self._call("POST", self._servers(name), ServerEntry, body)

    async def change(
        self, name: UpstreamName, number: int, fields: Mapping[str, Any]
    ) -> ServerEntry:
        """Give a server other parameters; raises PlusError."""
        return await self._call("PATCH", f"{self._servers(name)}/{number}", ServerEntry, fields)

    async def remove(self, name: UpstreamName, number: int) -> None:
        """Remove a server; one that is gone already is removed. Raises PlusError."""
        try:
            await self._call("DELETE", f"{self._servers(name)}/{number}", msgspec.Raw)
        except PlusError as error:
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
                timeout=self._limits,
                allow_redirects=False,
                ssl=self._trust or True,
                server_hostname=self._host.tls.server_name or None if self._trust else None,
            ) as response:
                content = await _body(response)
                outcome = str(response.status)
                return _read(response.status, content, kind)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise PlusError(0, "", _reason(error, self._limits.total)) from error
        finally:
            self.calls[method, outcome] += 1


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Read an answer; raises PlusError for one that no API gives."""
    found = bytearray()
    async for piece in response.content.iter_chunked(1 << 16):
        found += piece
        if len(found) > ANSWER_MAX:
            text = f"answered more than {ANSWER_MAX >> 20} MiB"
            raise PlusError(response.status, "", text)
    return bytes(found)


def _read(status: int, content: bytes, kind: type[T]) -> T:
    if not 200 <= status < 300:
        try:
            found = msgspec.json.decode(content, type=_Error).error
        except msgspec.DecodeError:
            shown = content[:200].decode("utf-8", "replace").strip()
            raise PlusError(
                status, "", f"answered {shown!r}, which is no error of the API"
            ) from None
        raise PlusError(status, found.code, found.text)
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise PlusError(status, "", f"its answer cannot be read: {error}") from error


def _reason(error: Exception, seconds: float | None) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is refused: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"its name is not known: {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"cannot connect: {os.strerror(number) if number else error.os_error}"
    return str(error) or type(error).__name__


def _context(tls: Tls) -> ssl.SSLContext:
    if tls.verify:
        trust = tls.trust.decode("ascii", "replace")
        context = ssl.create_default_context(cadata=trust or None)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate:
        # OpenSSL takes a key from a file alone: one that nobody else may read, for a blink.
        with tempfile.TemporaryDirectory(prefix="gatehouse-") as directory:
            path = Path(directory) / "client.pem"
            path.touch(mode=0o600)
            path.write_bytes(tls.certificate + b"\n" + tls.key.reveal())
            context.load_cert_chain(path)
    return context
