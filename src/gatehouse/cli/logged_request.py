"""Access log entry of a request or connection that `gatehouse explain --send` sent."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from gatehouse.cli.data_plane_reader import proxy_container
from gatehouse.compiler.evaluation.http_request import HttpRequest
from gatehouse.inspection.failed_requests import failure_cause
from gatehouse.kube import client as kube
from kube_base.runtime.time_limits import scaled
from kube_base.types import ip_addresses
from kube_base.types.objects import Object

Entry = TypeVar("Entry")

_HEADER = "X-Request-ID"
"""Header whose value is the field `request_id` of entries."""

_WAIT_SECONDS, _POLL_SECONDS = scaled(4.0), 0.4
"""Time for an entry to appear, and interval between reads of the logs."""

_CLOCK_SKEW_SECONDS = 0.05
"""Time by which the clock of a data plane may be late."""

_READ_SECONDS, _READ_LINES = 10, 5000
"""Part of a log that is read: its last seconds, and at most its last lines."""


class LoggedRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Access log entry of a request or connection, or the reason why there is none."""

    reason: str = ""
    """Why the data plane answered or ended the request itself; empty if the backend answered."""
    endpoint: str = ""
    attempts: int = 0
    """Number of attempts at endpoints; 0 for a connection."""
    problem: str = ""
    """Why there is no entry."""
    user: str | msgspec.UnsetType = msgspec.UNSET
    """User of a request to a kube-apiserver."""
    backend: str = ""
    """``kind/namespace/name``, or several of them, separated by commas; empty: none."""

    @property
    def text(self) -> str:
        """The entry as one line."""
        if self.problem:
            return self.problem
        if isinstance(self.user, str):
            parts = (f"user {self.user}", f"endpoint {self.endpoint}" if self.endpoint else "")
            return ", ".join(filter(None, (*parts, self.reason)))
        if not self.reason:
            kind = "the response is that of" if self.attempts else "forwarded to"
            return f"{kind} endpoint {self.endpoint or '(none)'}"
        text = f"reason {self.reason}"
        if not self.endpoint:
            return text
        attempts = f", attempts {self.attempts}" if self.attempts else ""
        cause = f": {self.cause}" if self.cause else ""
        return f"{text}, endpoint {self.endpoint}{attempts}{cause}"

    @property
    def cause(self) -> str:
        """The cause that the reason means for the endpoint, and what to check; empty: none."""
        port = self.endpoint.rpartition(":")[2]
        kinds = (name.partition("/") for name in filter(None, self.backend.split(",")))
        backend = ", ".join(f"{kind} {name}" for kind, _, name in kinds)
        return failure_cause(self.reason, backend or "the backend", port)


class _Entry(msgspec.Struct, frozen=True):
    """Fields of an entry. Envoy writes null for those without a value."""

    request_id: str | None
    reason: str | None
    endpoint: str | None
    attempts: int | None
    backend: str | None = None


class SentConnection(msgspec.Struct, frozen=True):
    """Properties by which the access log identifies a connection."""

    port: int
    protocol: str
    """TCP, also of TLS, or UDP."""
    server_name: str
    """SNI in lower case; empty if there was none."""
    peer: str
    """Local address of the socket."""
    started: float
    """Time before the connection, in seconds since 1970."""


class _ConnectionEntry(msgspec.Struct, frozen=True):
    """Fields of an entry of a connection."""

    time: datetime
    duration_ms: float
    listener: str
    protocol: str
    peer: str
    sni: str | None
    reason: str | None
    endpoint: str | None


def identified(request: HttpRequest) -> tuple[HttpRequest, str]:
    """Return a request with a value of X-Request-ID, and the value."""
    value = request.header(_HEADER.lower())
    if value:
        return request, value
    value = secrets.token_hex(16)
    headers = (*request.headers, (_HEADER, value))
    return msgspec.structs.replace(request, headers=headers), value


async def read_logged(
    client: kube.Client,
    pods: Iterable[Object],
    find: Callable[[Sequence[str]], LoggedRequest | None],
) -> LoggedRequest:
    """Wait for an entry in the logs of data planes. ``find``: returns it, if it is in the lines."""
    unread = list(pods)
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            while unread:
                for pod in unread:
                    entry = find((await _log(client, pod)).splitlines())
                    if entry is not None:
                        return entry
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return LoggedRequest(problem="no entry in the access log, which may be disabled or sampled")
    except kube.ApiError as error:
        return LoggedRequest(problem=f"the access log cannot be read: {error}")
    return LoggedRequest(problem="there is no data plane")


async def _log(client: kube.Client, pod: Object) -> str:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    container = proxy_container(pod)
    return await client.pod_log(namespace, name, container, _READ_SECONDS, _READ_LINES)


def logged_entries(lines: Iterable[str], text: str, structure: type[Entry]) -> Iterator[Entry]:
    """Yield the entries of a structure among lines that contain a text."""
    for line in lines:
        if text not in line:
            continue
        try:
            entry = msgspec.json.decode(line, type=structure)
        except msgspec.MsgspecError:
            continue
        yield entry


def find_entry(lines: Sequence[str], request_id: str) -> LoggedRequest | None:
    """Return the last entry with a request ID, None if there is none."""
    for entry in logged_entries(reversed(lines), request_id, _Entry):
        if entry.request_id == request_id:
            return LoggedRequest(
                entry.reason or "",
                entry.endpoint or "",
                entry.attempts or 0,
                backend=entry.backend or "",
            )
    return None


def find_connection(
    lines: Sequence[str], gateway: str, sent: SentConnection
) -> LoggedRequest | None:
    """Return the entry of a connection to a Gateway (``namespace/name``), None if there is none."""
    listener = f"{gateway}:{sent.port}"
    expected = (listener, sent.protocol, sent.server_name, _address(sent.peer))
    for entry in logged_entries(lines, listener, _ConnectionEntry):
        sni = (entry.sni or "").lower()
        own = (entry.listener, entry.protocol, sni, _address(entry.peer))
        if own == expected and _began(entry) >= sent.started - _CLOCK_SKEW_SECONDS:
            return LoggedRequest(entry.reason or "", entry.endpoint or "")
    return None


def _began(entry: _ConnectionEntry) -> float:
    return entry.time.timestamp() - entry.duration_ms / 1000


def _address(text: str) -> object:
    """Return an address without regard to IPv4 in IPv6, or the text if it is no address."""
    try:
        address = ip_addresses.ip_address(text)
    except ValueError:
        return text
    return getattr(address, "ipv4_mapped", None) or address
