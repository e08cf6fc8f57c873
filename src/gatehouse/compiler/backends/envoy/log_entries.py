"""Entries of all access logs of Envoy: one JSON object each, on its standard output.

JSON quotes all values of clients. Metadata of clusters and routes names the backend and the route.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2, substitution_format_string_pb2
from envoy.extensions.access_loggers.file.v3 import file_pb2
from envoy.extensions.access_loggers.stream.v3 import stream_pb2
from envoy.extensions.formatter.cel.v3 import cel_pb2

from gatehouse.compiler.backends.envoy import extensions
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.ir.access_log import ALL_FIELDS, NUMBER_FIELDS, LocalReason, Style
from gatehouse.dataplane import request_log

METADATA = "gatehouse"
"""Namespace of the metadata of clusters and routes that log entries show."""

_CEL = "CEL("

BACKEND_OF_CLUSTER = f"%METADATA(CLUSTER:{METADATA}:backend)%"
ROUTE_OF_CLUSTER = f"%METADATA(CLUSTER:{METADATA}:route)%"
ROUTE_OF_REQUEST = f"%METADATA(ROUTE:{METADATA}:route)%"


OF_CONNECTIONS = {
    "time": "%EMIT_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "peer": "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%",
    "sni": "%REQUESTED_SERVER_NAME%",
    "endpoint": "%UPSTREAM_HOST%",
    "duration_ms": "%DURATION%",
}
"""Fields of all entries."""

OF_REQUESTS = OF_CONNECTIONS | {
    "method": "%REQ(:METHOD)%",
    "protocol": "%PROTOCOL%",
    "status": "%RESPONSE_CODE%",
    "bytes_received": "%DOWNSTREAM_WIRE_BYTES_RECEIVED%",
    "bytes_sent": "%DOWNSTREAM_WIRE_BYTES_SENT%",
    "grpc_status": "%GRPC_STATUS_NUMBER%",
    "attempts": "%TYPED_CEL(has(upstream.address) ? upstream.request_attempt_count : 0)%",
    "user_agent": "%REQ(USER-AGENT)%",
}
"""Fields of the entries of all requests."""


class ListenerLog(msgspec.Struct, frozen=True):
    """Logs of a listener: its name in entries, and their style."""

    name: str
    style: Style = "json"
    entries: bool = True
    """False: the access log is disabled."""
    counts: bool = False
    """True if the agent counts connections."""


def entry_log(fields: Mapping[str, str], style: Style = "json") -> accesslog_pb2.AccessLog:
    """Return a log whose entries have these fields. Values are in the language of Envoy.

    Lines of text do not escape values: those of clients must have no quotes.
    """
    line = substitution_format_string_pb2.SubstitutionFormatString()
    if style == "json":
        line.json_format.update({name: str(value) for name, value in fields.items()})
    else:
        line.omit_empty_values = True
        line.text_format_source.inline_string = _text(fields)
    _add_formatters(line, fields)
    return accesslog_pb2.AccessLog(
        name="envoy.access_loggers.stdout",
        typed_config=packed(stream_pb2.StdoutAccessLog(log_format=line)),
    )


def count_log(
    path: str, head: Sequence[str], numbers: Sequence[str], values: Mapping[str, str]
) -> accesslog_pb2.AccessLog:
    """Return a log that the agent counts (:func:`~gatehouse.dataplane.request_log.format_line`).

    The file is in the working directory of Envoy.
    """
    config = file_pb2.FileAccessLog(path=path)
    line = request_log.format_line(head, numbers, values)
    config.log_format.text_format_source.inline_string = f"{line}\n"
    _add_formatters(config.log_format, values)
    return accesslog_pb2.AccessLog(name="envoy.access_loggers.file", typed_config=packed(config))


def _add_formatters(
    line: substitution_format_string_pb2.SubstitutionFormatString, fields: Mapping[str, str]
) -> None:
    """Add the formatters that the values of fields need."""
    if any(_CEL in value for value in fields.values()):
        line.formatters.append(extensions.extension("envoy.formatter.cel", cel_pb2.Cel()))


def _text(fields: Mapping[str, str]) -> str:
    ordered = ((name, fields[name]) for name in ALL_FIELDS if name in fields)
    pairs = (
        f"{name}={value}" if name in NUMBER_FIELDS else f'{name}="{value}"'
        for name, value in ordered
    )
    return " ".join(pairs) + "\n"


def expression(cel: str) -> str:
    """Return the value of a field that a CEL expression computes."""
    return f"%{_CEL}{cel})%"


def metadata_value(source: str, key: str, otherwise: LocalReason | str) -> str:
    """Return the CEL expression of a value in metadata. ``source``: attribute of the metadata."""
    fields = f"{source}.filter_metadata"
    return (
        f"('{METADATA}' in {fields} && '{key}' in {fields}['{METADATA}'] ? "
        f"{fields}['{METADATA}']['{key}'] : '{otherwise}')"
    )


def first_reason(conditions: Sequence[tuple[str, str]], otherwise: LocalReason | str) -> str:
    """Return the CEL expression of a reason. Conditions in CEL: the first that holds counts."""
    text = f"'{otherwise}'"
    for condition, meaning in reversed(conditions):
        text = f"({condition}) ? {meaning} : ({text})"
    return text


def add_log_metadata(metadata: base_pb2.Metadata, **fields: str) -> None:
    """Add to the metadata of a cluster or route what log entries show of it."""
    known = {name: text for name, text in fields.items() if text}
    if known:
        metadata.filter_metadata[METADATA].update(known)
