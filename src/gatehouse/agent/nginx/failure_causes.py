"""Causes of failed requests and connections, which take the place of marks in the logs of NGINX.

NGINX writes to its error log when an attempt fails, and to its other logs when the request or
connection ends. So the error log has the cause of every mark that was read, and the agent needs not
wait for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from gatehouse.agent.nginx.failed_attempts import REQUEST_START, FailedAttempt
from gatehouse.dataplane.failed_attempts import MARK_START
from gatehouse.sidecars.tls_connector.config import CONNECTOR_SOCKETS

MAX_CAUSES = 20_000
"""Maximum number of attempts whose causes are remembered, in about 5 MB. They are those of 2 s,
before which logs are read, if 10,000 attempts per second fail."""

_REPLACED = b"connection_failure"
"""Reason of NGINX that is replaced by the cause. Others are exact."""

_MARK = MARK_START.encode()

_ACCESS_MARK = re.compile(
    rb'reason(?:":|=)"(?P<reason>[a-z_]*)'
    rb'(?P<mark>\*(?P<connection>\d{1,19}) (?P<text>(?:[^"\\\n]|\\.)*))"'
)
"""Mark in an entry of the access log. Values have no quotation mark that is not escaped."""

_STARTS = (b'{"time":"', b'time="')
"""Starts of entries. A format of a user has no marks, but may contain any text of clients."""

_COUNTED_MARK = re.compile(
    rb"^((?:[^\t\n]*\t){1,2}[a-z_-]*)\*(\d{1,19}) ([^\t\n]*)(?=\t)", re.MULTILINE
)
"""Mark in a line of a log for metrics. No value has a tab."""

_CONNECTOR = re.compile(rf"unix:{CONNECTOR_SOCKETS}/([0-9A-Za-z-]+)\.sock")
"""Socket of a TLS connector, in place of an endpoint."""

_NAMED = ("backend_certificate", "backend_tls", "backend_protocol")
"""Causes that NGINX does not tell from connection failures. It tells others itself."""


class FailureCauses:
    """Causes of the last failed attempts. `read` reads what is new in the error log.

    `run`: working directory of NGINX, with the sockets of TLS connectors.
    """

    def __init__(self, read: Callable[[], None], run: Path) -> None:
        self._read, self._run = read, run
        self._causes: dict[tuple[int, str, int], str] = {}
        """Causes by connection, endpoint and hash of the start of the request line."""

    def remember(self, attempts: Iterable[FailedAttempt]) -> None:
        """Remember the causes of attempts. The last attempt of a request at an endpoint counts."""
        for attempt in attempts:
            key = _key(attempt.connection, attempt.endpoint, attempt.request)
            self._causes.pop(key, None)
            self._causes[key] = attempt.reason
            if len(self._causes) > MAX_CAUSES:
                del self._causes[next(iter(self._causes))]

    def access_entries(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield complete entries of the access log, and the same with causes in place of marks.

        An entry with a mark is yielded alone.
        """
        end = done = 0
        while match := _ACCESS_MARK.search(data, end):
            start = data.rfind(b"\n", end, match.start()) + 1 or end
            end = data.find(b"\n", match.end()) + 1 or len(data)
            if not data.startswith(_STARTS, start):
                continue
            if not done:
                self._read()
            if start > done:
                yield data[done:start], data[done:start]
            done = end
            reason = self._access_reason(match)
            entry = data[start : match.start("reason")] + reason + data[match.end("mark") : end]
            yield data[start:end], entry
        if done < len(data):
            yield data[done:], data[done:]

    def _access_reason(self, match: re.Match[bytes]) -> bytes:
        if match["reason"] != _REPLACED:
            return match["reason"]
        # JSON escapes backslashes. The error log has no other character that JSON escapes.
        cause = self._cause(match["connection"], match["text"].replace(rb"\\", b"\\"))
        return cause.encode() or _REPLACED

    def counted_lines(self, data: bytes) -> bytes:
        """Return lines of a log for metrics with causes in place of marks."""
        # Most blocks have no mark.
        if _MARK not in data:
            return data
        self._read()
        return _COUNTED_MARK.sub(self._counted_line, data)

    def _counted_line(self, match: re.Match[bytes]) -> bytes:
        cause = self._cause(match[2], match[3])
        return match[1] + (_MARK + cause.encode() if cause else b"")

    def _cause(self, connection: bytes, text: bytes) -> str:
        """Return the cause of a mark with a text of endpoints and request; empty: not known."""
        endpoints, *words = text.decode(errors="replace").rsplit(" ", 3)
        if not (words and words[-1].startswith("HTTP/")):
            # A connection. Its last endpoint may follow others.
            endpoints, words = words[-1] if words else endpoints, []
        endpoint, request = endpoints.rpartition(" ")[2], " ".join(words)
        if match := _CONNECTOR.fullmatch(endpoint):
            return self._connector_cause(match[1])
        cause = self._causes.get(_key(int(connection), endpoint, request))
        if cause is None and len(request) > REQUEST_START:
            cause = self._causes.get(_key(int(connection), "", request))
        return cause if cause in _NAMED else ""

    def _connector_cause(self, name: str) -> str:
        """Return the cause if the last handshake of a TLS connector failed; otherwise empty."""
        try:
            cause = (self._run / CONNECTOR_SOCKETS / f"{name}.cause").read_text(encoding="ascii")
        except (OSError, ValueError):
            return ""
        return cause if cause in _NAMED else ""


def _key(connection: int, endpoint: str, request: str) -> tuple[int, str, int]:
    return connection, endpoint, hash(request[:REQUEST_START])
