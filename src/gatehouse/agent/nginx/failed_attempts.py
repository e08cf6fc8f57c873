"""Failed attempts of requests and L4 connections at endpoints, from the error log of NGINX.

NGINX has no variable with the cause of a failed TLS handshake, so that its other logs cannot tell a
handshake from a refused connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

REQUEST_START = 1000
"""Number of characters that identify a long request. NGINX ends a line after 2,047 bytes."""

_ADDRESS = r"[0-9a-f.:\[\]]{3,45}:\d{1,5}"

_LINE = re.compile(
    r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[\w+\] \d+#\d+: \*(?P<connection>\d{1,19}) "
    r'(?P<text>[^"]*?(?:does not match "[^"\s]*")?)'
    r" while (?P<stage>connecting to|SSL handshaking to|reading [\w ]{1,32} from) upstream, "
    r'client: [^",]*, server: [^"]*, (?:'
    rf'upstream: "(?P<peer>{_ADDRESS})", bytes '
    r'|request: "(?P<request>[A-Z_-]+ [^"\s]* HTTP/[\d.]+)", (?:subrequest: "[^"]*", )?'
    rf'upstream: "\w{{1,8}}://(?P<endpoint>{_ADDRESS})[/"]'
    rf'|request: "(?P<start>(?=[^"]{{{REQUEST_START}}})[A-Z_-]+ [^"\s]*))'
)
"""NGINX quotes what clients and backends send. A line that has more of it than the request is not
used, since the rest could be their text, too."""
_CERTIFICATE = "upstream SSL certificate "
_PROTOCOL = "upstream sent "
_TIMEOUT = "upstream timed out"
_CLOSED = "peer closed connection"
"""Text about an endpoint that closes the connection in place of an answer to the handshake."""


class FailedAttempt(NamedTuple):
    """A failed attempt. Its client chooses the request line only."""

    connection: int
    """Number of the client's connection in NGINX."""
    endpoint: str
    """Address and port; empty if the line ends before them."""
    request: str
    """Request line, or its start; empty: an L4 connection."""
    reason: str
    """Cause, with the meaning that the reason has in the access log."""


def failed_attempts(lines: Iterable[str]) -> Iterator[FailedAttempt]:
    """Yield the attempts that lines of the error log report."""
    for line in lines:
        if match := _LINE.match(line):
            request = match["request"] or match["start"] or ""
            endpoint = match["peer"] or match["endpoint"] or ""
            reason = _reason(match["text"], match["stage"])
            yield FailedAttempt(int(match["connection"]), endpoint, request, reason)


def _reason(text: str, stage: str) -> str:
    if _TIMEOUT in text:
        return "timeout"
    if _CERTIFICATE in text:
        return "backend_certificate"
    if stage.startswith("SSL") and _CLOSED not in text:
        return "backend_tls"
    return "backend_protocol" if _PROTOCOL in text else "connection_failure"
