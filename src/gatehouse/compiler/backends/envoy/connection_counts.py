"""Connection log for metrics (:mod:`gatehouse.dataplane.connection_counts`): its format in Envoy.

The log does not depend on the settings of the access log.
"""

from __future__ import annotations

from collections.abc import Mapping

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.extensions.access_loggers.file.v3 import file_pb2

from gatehouse.compiler.backends.envoy import log_entries
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.dataplane import connection_counts, request_log

_NAMES = {"duration": "duration_ms", "received": "bytes_received", "sent": "bytes_sent"}
"""Names of numbers among the fields of entries."""


def connection_logger(fields: Mapping[str, str]) -> accesslog_pb2.AccessLog:
    """Return the logger of connections with these fields of entries. The file is in the working
    directory of Envoy."""
    names = (*connection_counts.ENVOY_CONNECTION_HEAD, *connection_counts.CONNECTION_NUMBERS)
    values = {name: fields[_NAMES.get(name, name)] for name in names}
    line = request_log.format_line(
        connection_counts.ENVOY_CONNECTION_HEAD, connection_counts.CONNECTION_NUMBERS, values
    )
    config = file_pb2.FileAccessLog(path=connection_counts.CONNECTIONS_FILE)
    config.log_format.text_format_source.inline_string = f"{line}\n"
    log_entries.add_formatters(config.log_format, values)
    return accesslog_pb2.AccessLog(name="envoy.access_loggers.file", typed_config=packed(config))
