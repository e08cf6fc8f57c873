"""Request log for metrics (:mod:`gatehouse.dataplane.request_log`): its format in Envoy.

The log does not depend on the settings of the access log.
"""

from __future__ import annotations

from envoy.config.accesslog.v3 import accesslog_pb2

from gatehouse.compiler.backends.envoy import log_entries
from gatehouse.dataplane import request_log

_METHOD_LENGTH = 16
"""Maximum length of a method in a line. The agent knows no method that is longer."""

_VALUES = {
    "route": log_entries.ROUTE_OF_REQUEST,
    "backend": f"%METADATA(CLUSTER:{log_entries.METADATA}:backend)%",
    # The details have no white space.
    "status": "%RESPONSE_CODE% %RESPONSE_CODE_DETAILS%",
    "duration": "%DURATION%",
    "upstream": "%COMMON_DURATION(US_TX_BEG:US_RX_BEG:ms)%",
    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "received": "%DOWNSTREAM_WIRE_BYTES_RECEIVED%",
    "sent": "%DOWNSTREAM_WIRE_BYTES_SENT%",
    "method": f"%REQ(:METHOD):{_METHOD_LENGTH}%",
}


def logger() -> accesslog_pb2.AccessLog:
    """Return the logger. The file is in the working directory of Envoy."""
    return log_entries.count_log(
        request_log.FILE, request_log.ENVOY_HEAD, request_log.ENVOY_NUMBERS, _VALUES
    )
