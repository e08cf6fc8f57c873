"""Connection log for metrics (:mod:`gatehouse.dataplane.connection_counts`): its format in Envoy.

The log does not depend on the settings of the access log.
"""

from __future__ import annotations

from collections.abc import Mapping

from envoy.config.accesslog.v3 import accesslog_pb2

from gatehouse.compiler.backends.envoy import log_entries
from gatehouse.dataplane import connection_counts

_NAMES = {"duration": "duration_ms", "received": "bytes_received", "sent": "bytes_sent"}
"""Names of numbers among the fields of entries."""


def connection_logger(fields: Mapping[str, str]) -> accesslog_pb2.AccessLog:
    """Return the logger of connections with these fields of entries. The file is in the working
    directory of Envoy."""
    head, numbers = connection_counts.ENVOY_CONNECTION_HEAD, connection_counts.CONNECTION_NUMBERS
    values = {name: fields[_NAMES.get(name, name)] for name in (*head, *numbers)}
    return log_entries.count_log(connection_counts.CONNECTIONS_FILE, head, numbers, values)
