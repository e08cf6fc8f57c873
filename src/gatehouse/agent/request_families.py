"""Metrics of requests and connections per route and backend, for all proxies: names, help and
buckets."""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    """A metric family. `name` has the suffix of counters."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]


REQUESTS = Family(
    "gatehouse_route_requests_total",
    "counter",
    "Requests by rule of a route, method and status class.",
    ("route", "method", "status_class"),
)
REQUEST_DURATION = Family(
    "gatehouse_route_request_duration_seconds",
    "histogram",
    "Duration of requests, until the last byte was sent.",
    ("route",),
)
UPSTREAM_DURATION = Family(
    "gatehouse_route_upstream_duration_seconds",
    "histogram",
    "Time until an endpoint sent the header of its response, for the last attempt.",
    ("route",),
)
BYTES = Family(
    "gatehouse_route_bytes_total",
    "counter",
    "Bytes received from and sent to clients, with headers.",
    ("route", "direction"),
)
RETRIES = Family(
    "gatehouse_route_retries_total",
    "counter",
    "Attempts at endpoints after the first one of a request.",
    ("route",),
)
BACKEND_REQUESTS = Family(
    "gatehouse_backend_requests_total",
    "counter",
    "Requests by backend, status class, and reason why no endpoint responded.",
    ("backend", "status_class", "reason"),
)

REQUEST_FAMILIES = (REQUESTS, REQUEST_DURATION, UPSTREAM_DURATION, BYTES, RETRIES, BACKEND_REQUESTS)

ROUTE_CONNECTIONS = Family(
    "gatehouse_route_connections_total",
    "counter",
    "TCP and TLS connections and UDP sessions by rule of an L4 route.",
    ("route", "protocol", "reason"),
)
CONNECTION_DURATION = Family(
    "gatehouse_route_connection_duration_seconds",
    "histogram",
    "Duration of L4 connections and sessions.",
    ("route",),
)
CONNECTION_BYTES = Family(
    "gatehouse_route_connection_bytes_total",
    "counter",
    "Bytes received from and sent to clients in L4 connections and sessions.",
    ("route", "direction"),
)
BACKEND_CONNECTIONS = Family(
    "gatehouse_backend_connections_total",
    "counter",
    "L4 connections and sessions by backend.",
    ("backend", "reason"),
)

CONNECTION_FAMILIES = (
    ROUTE_CONNECTIONS,
    CONNECTION_DURATION,
    CONNECTION_BYTES,
    BACKEND_CONNECTIONS,
)

CONNECTION_DURATION_BOUNDS = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 21600.0, 86400.0)
"""Upper bounds in seconds of the buckets of the durations of connections, which may last days."""

DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds of the buckets of durations."""

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")
"""Methods with series of their own. All others are :data:`OTHER`."""

STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")

NO_STATUS = "none"
"""Status class of a request that ended without a response."""

OTHER = "other"
"""Method, route or backend of requests that have no series of their own."""

MAX_KEYS = 1000
"""Maximum number of rules, and of backends, with series of their own."""

MAX_KEYS_OF_NAMESPACE = 500
"""Maximum number of them in one namespace: a tenant cannot take the series of the others."""

IDLE_KEY_SECONDS = 3600.0
"""Time in seconds without a request after which a rule may lose its series to another one."""
