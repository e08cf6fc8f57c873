"""Failed attempts at endpoints, counted from the error log of NGINX.

NGINX has no variable with the cause of a failed TLS handshake, so that its request log cannot tell
a handshake from a refused connection.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from gatehouse.runtime.prometheus import Sample

MAX_COUNTED_ENDPOINTS = 1000
"""Maximum number of endpoints with counters. Failures of further endpoints are not counted."""

_LINE = re.compile(
    r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[\w+\] \d+#\d+: \*\d+ "
    r'(?P<text>[^"]*?(?:does not match "[^"\s]*")?)'
    r" while (?P<stage>connecting to|SSL handshaking to|reading [\w ]{1,32} from) upstream, "
    r'client: [^",]*, server: [^"]*, request: "[A-Z_-]+ [^"\s]* HTTP/[\d.]+", '
    r'(?:subrequest: "[^"]*", )?upstream: "\w{1,8}://(?P<endpoint>[0-9a-f.:\[\]]{3,45}:\d{1,5})[/"]'
)
"""NGINX quotes what clients and backends send. A line that has more of it than the request is not
counted, since the rest could be their text, too."""
_CERTIFICATE = "upstream SSL certificate "
_PROTOCOL = "upstream sent "
_TIMEOUT = "upstream timed out"


class EndpointFailures:
    """Counters of failed attempts since the start of the agent."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        """Numbers by endpoint and reason."""
        self._endpoints: set[str] = set()

    def count(self, lines: Iterable[str]) -> None:
        """Count the lines of the error log that report a failed attempt."""
        for line in lines:
            if (match := _LINE.match(line)) is None:
                continue
            endpoint = match["endpoint"]
            if endpoint not in self._endpoints and len(self._endpoints) >= MAX_COUNTED_ENDPOINTS:
                continue
            self._endpoints.add(endpoint)
            self._counts[endpoint, _reason(match["text"], match["stage"])] += 1

    def samples(self) -> Iterator[Sample]:
        """Yield the counters."""
        name = "gatehouse_agent_endpoint_failures"
        help_ = "Failed attempts of NGINX at endpoints by reason, from its error log."
        for (endpoint, reason), number in self._counts.items():
            labels = {"endpoint": endpoint, "reason": reason}
            yield Sample(name, help_, number, "counter", labels)


def _reason(text: str, stage: str) -> str:
    """Return the reason of a message, with the meaning that it has in the access log."""
    if _TIMEOUT in text:
        return "timeout"
    if _CERTIFICATE in text:
        return "backend_certificate"
    if stage.startswith("SSL"):
        return "backend_tls"
    return "backend_protocol" if _PROTOCOL in text else "connection_failure"
