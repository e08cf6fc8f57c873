"""Access log entry of a request that `gatehouse explain --send` sent."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence

import msgspec

from gatehouse.apis.objects import Object
from gatehouse.cli.data_plane_reader import proxy_container
from gatehouse.compiler.evaluation.http_request import HttpRequest
from gatehouse.kube import client as kube

_HEADER = "X-Request-ID"
"""Header whose value is the field `request_id` of entries."""

_WAIT_SECONDS, _POLL_SECONDS = 4.0, 0.4
"""Time for an entry to appear, and interval between reads of the logs."""

_READ_SECONDS, _READ_LINES = 10, 5000
"""Part of a log that is read: its last seconds, and at most its last lines."""


class LoggedRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Access log entry of a request, or the reason why there is none."""

    reason: str = ""
    """Why the data plane answered or ended the request itself; empty if the backend answered."""
    endpoint: str = ""
    attempts: int = 0
    problem: str = ""
    """Why there is no entry."""

    @property
    def text(self) -> str:
        """The entry as one line."""
        if self.problem:
            return self.problem
        if not self.reason:
            return f"the response is that of endpoint {self.endpoint}"
        if not self.endpoint:
            return f"reason {self.reason}"
        return f"reason {self.reason}, endpoint {self.endpoint}, attempts {self.attempts}"


class _Entry(msgspec.Struct, frozen=True):
    """Fields of an entry. Envoy writes null for those without a value."""

    request_id: str | None
    reason: str | None
    endpoint: str | None
    attempts: int | None


def identified(request: HttpRequest) -> tuple[HttpRequest, str]:
    """Return a request with a value of X-Request-ID, and the value."""
    value = request.header(_HEADER.lower())
    if value:
        return request, value
    value = secrets.token_hex(16)
    headers = (*request.headers, (_HEADER, value))
    return msgspec.structs.replace(request, headers=headers), value


async def read_logged_request(
    client: kube.Client, pods: Iterable[Object], request_id: str
) -> LoggedRequest:
    """Wait for the entry of a request in the logs of data planes."""
    unread = list(pods)
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            while unread:
                for pod in unread:
                    entry = find_entry((await _log(client, pod)).splitlines(), request_id)
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


def find_entry(lines: Sequence[str], request_id: str) -> LoggedRequest | None:
    """Return the last entry with a request ID, None if there is none."""
    for line in reversed(lines):
        if request_id not in line:
            continue
        try:
            entry = msgspec.json.decode(line, type=_Entry)
        except msgspec.MsgspecError:
            continue
        if entry.request_id == request_id:
            return LoggedRequest(entry.reason or "", entry.endpoint or "", entry.attempts or 0)
    return None
