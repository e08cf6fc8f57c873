"""Metrics of L4 connections and UDP sessions per route and backend, counted from the connection
log of the proxy (:mod:`gatehouse.dataplane.connection_counts`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gatehouse.agent import request_families as families
from gatehouse.agent.counted_log import CountedLog
from gatehouse.agent.histogram import Histogram
from gatehouse.agent.request_families import CONNECTION_DURATION_BOUNDS, OTHER, Family
from gatehouse.dataplane.connection_counts import CONNECTION_NUMBERS
from gatehouse.dataplane.failed_attempts import MARK_START
from gatehouse.runtime.prometheus import Sample

_PROTOCOLS = {b"TCP": "TCP", b"UDP": "UDP"}

_REASONS = {
    reason.encode(): reason
    for reason in (
        "no_route", "no_endpoint", "invalid_route", "connection_failure", "backend_certificate",
        "backend_tls", "timeout", "bad_request", "rejected",
    )
}  # fmt: skip
"""Reasons of connections. The agent knows none of the compiler's types."""

_BACKEND_REASONS = ("", "no_endpoint", "connection_failure", "backend_certificate", "backend_tls")
"""Reasons of connections that count for the backend."""


class ConnectionHead(NamedTuple):
    """Properties that many connections have in common."""

    route: bytes
    backend: bytes
    reason: str
    """Why the proxy closed the connection; empty: it was forwarded."""
    protocol: str


class ConnectionFormat(NamedTuple):
    """Format of the lines of one proxy. `head` raises ValueError."""

    head: Callable[[bytes], ConnectionHead]
    per_second: float
    """Number of the units of durations in a second."""


def _nginx_head(text: bytes) -> ConnectionHead:
    host, reason, protocol = text.split(b"\t")
    route, backend, _ = host.split(b" ")
    own, _, cause = reason.partition(MARK_START.encode())
    return _head(route, backend, cause or own, protocol)


def _envoy_head(text: bytes) -> ConnectionHead:
    return _head(*text.split(b"\t", 3))


def _head(route: bytes, backend: bytes, reason: bytes, protocol: bytes) -> ConnectionHead:
    known = _REASONS.get(reason, OTHER) if _present(reason) else ""
    return ConnectionHead(
        _present(route), _present(backend), known, _PROTOCOLS.get(protocol, OTHER)
    )


def _present(text: bytes) -> bytes:
    return b"" if text == b"-" else text


NGINX_CONNECTIONS = ConnectionFormat(_nginx_head, 1)
ENVOY_CONNECTIONS = ConnectionFormat(_envoy_head, 1000)


class _Rule:
    """Values of one rule of a route."""

    __slots__ = ("connections", "duration", "labels", "received", "sent", "used")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.used = 0.0
        self.connections: Counter[tuple[str, str]] = Counter()
        self.duration = Histogram(CONNECTION_DURATION_BOUNDS)
        self.received = self.sent = 0

    def lines(self, family: Family) -> Iterator[str]:
        name, labels = family.name, self.labels
        match family:
            case families.ROUTE_CONNECTIONS:
                for (protocol, reason), value in self.connections.items():
                    own = f'protocol="{protocol}",reason="{reason}"'
                    yield f"{name}{{{own},{labels}}} {value}"
            case families.CONNECTION_DURATION:
                yield from self.duration.lines(name, labels)
            case families.CONNECTION_BYTES:
                yield f'{name}{{direction="received",{labels}}} {self.received}'
                yield f'{name}{{direction="sent",{labels}}} {self.sent}'


class _Backend:
    """Values of one backend."""

    __slots__ = ("connections", "labels", "used")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.used = 0.0
        self.connections: Counter[str] = Counter()

    def lines(self, family: Family) -> Iterator[str]:
        for reason, value in self.connections.items():
            yield f'{family.name}{{reason="{reason}",{self.labels}}} {value}'


class ConnectionMetrics(CountedLog[_Rule, _Backend]):
    """Metrics of the connections in the file `path`, each with `labels` of the data plane."""

    page_families = families.CONNECTION_FAMILIES
    backend_family = families.BACKEND_CONNECTIONS

    def __init__(
        self,
        path: Path,
        log_format: ConnectionFormat,
        labels: Mapping[str, str],
        completed: Callable[[bytes], bytes] = lambda lines: lines,
    ) -> None:
        super().__init__(path, "connection log", _Rule, _Backend, labels, completed)
        self._format = log_format

    def _count(self, text: bytes, lines: list[bytes]) -> None:
        for line in lines:
            try:
                self._count_line(self._format.head(text), line)
            except (ValueError, TypeError):
                self._malformed += len(text) + len(line) + 2

    def _count_line(self, head: ConnectionHead, line: bytes) -> None:
        values = line.split(b"\t")
        if len(values) != len(CONNECTION_NUMBERS):
            raise ValueError(f"{len(values)} numbers")
        # Envoy writes no number for a UDP session without datagrams in a direction.
        duration, received, sent = (_present(value) or b"0" for value in values)
        seconds = float(duration) / self._format.per_second
        received_bytes, sent_bytes = int(received), int(sent)
        rule = self._rules.get(head.route)
        rule.connections[head.protocol, head.reason] += 1
        rule.duration.add([(seconds, 1)])
        rule.received += received_bytes
        rule.sent += sent_bytes
        if head.backend and head.reason in _BACKEND_REASONS:
            self._backends.get(head.backend).connections[head.reason] += 1

    def samples(self) -> list[Sample]:
        """Return the metrics of the log itself."""
        name = "gatehouse_agent_connection_log_dropped_bytes"
        help_ = (
            "Bytes about connections that were not counted, because too many waited or malformed."
        )
        return [Sample(name, help_, self.dropped, "counter")]
