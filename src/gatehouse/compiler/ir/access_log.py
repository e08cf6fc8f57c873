"""IR of access logs: settings, reasons and names, the same for all proxies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

import msgspec

from gatehouse.dataplane.origin import NO_ORIGIN, Origin

Escape = Literal["default", "json", "none"]

Style = Literal["json", "text"]
"""JSON, or the same fields as ``name=value``."""

REQUEST_FIELDS = (
    "time", "listener", "client", "peer", "host", "sni", "method", "path", "protocol", "status",
    "grpc_status", "bytes_received", "bytes_sent", "duration_ms", "upstream_ms", "route",
    "backend", "endpoint", "attempts", "reason", "user_agent", "request_id", "trace_id",
)  # fmt: skip
"""Names of the fields of a request, in the order of a line of text."""

CONNECTION_FIELDS = (
    "time", "listener", "client", "peer", "sni", "destination", "protocol", "bytes_received",
    "bytes_sent", "duration_ms", "route", "backend", "endpoint", "reason",
)  # fmt: skip
"""Names of the fields of a connection, in the order of a line of text. Only HostedAPIServer ports
for node proxies have a destination."""

ALL_FIELDS = tuple(dict.fromkeys((*REQUEST_FIELDS[:6], "destination", *REQUEST_FIELDS[6:])))
"""Names of all fields, in this order."""

NUMBER_FIELDS = (
    "status", "grpc_status", "bytes_received", "bytes_sent", "duration_ms", "upstream_ms",
    "attempts",
)  # fmt: skip
"""Fields that are numbers. All others are quoted."""


class NginxLogFormat(msgspec.Struct, frozen=True):
    """Format of the access log of NGINX."""

    text: str = ""
    """Text with NGINX variables in place of the fields; empty: the fields."""
    escape: Escape = "default"
    """Characters of values that NGINX escapes in the text."""


class AccessLog(msgspec.Struct, frozen=True):
    """Settings of the access log of a data plane."""

    status_classes: tuple[int, ...] = ()
    """First digits of the statuses of requests that are logged; empty: all."""
    percent: int = 100
    """Share of requests that is logged."""
    style: Style = "json"
    nginx: NginxLogFormat = NginxLogFormat()


_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")
"""Characters that would divide the lines of logs that are not JSON."""


class LocalReason(StrEnum):
    """Why the proxy itself answered a request, or ended a connection."""

    NO_ROUTE = "no_route"
    NO_ENDPOINT = "no_endpoint"
    INVALID_ROUTE = "invalid_route"
    CONNECTION_FAILURE = "connection_failure"
    BACKEND_CERTIFICATE = "backend_certificate"
    BACKEND_TLS = "backend_tls"
    BACKEND_PROTOCOL = "backend_protocol"
    TIMEOUT = "timeout"
    RATE_LIMIT = "rate_limit"
    AUTHENTICATION = "authentication"
    CLIENT_CERTIFICATE = "client_certificate"
    BODY_TOO_LARGE = "body_too_large"
    MISDIRECTED = "misdirected"
    BAD_REQUEST = "bad_request"
    CLIENT_CLOSED = "client_closed"
    REJECTED = "rejected"


def rule_text(route: str) -> str:
    """Return the rule of a route with the name ``namespace/name/rule/match``."""
    return _CONTROL_CHARACTERS.sub("?", route.rpartition("/")[0])


def object_rule_text(origin: Origin, rule: int = 0) -> str:
    """Return a rule of an object as log entries name it; empty if the object is unknown.

    A HostedAPIServer has only the rule 0.
    """
    if origin == NO_ORIGIN:
        return ""
    return f"{origin.namespace}/{origin.name}/{rule}"


def object_text(origin: Origin) -> str:
    """Return an object as log entries name it: ``kind/namespace/name``; empty if it is unknown."""
    if origin == NO_ORIGIN:
        return ""
    text = "/".join((origin.kind, origin.namespace, origin.name))
    return _CONTROL_CHARACTERS.sub("?", text)


def objects_text(origins: Iterable[Origin]) -> str:
    """Return several objects as log entries name them, each once."""
    return ",".join(filter(None, dict.fromkeys(map(object_text, origins))))
