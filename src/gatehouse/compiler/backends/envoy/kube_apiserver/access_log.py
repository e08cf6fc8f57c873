"""The access log of requests for kube-apiservers: one JSON object for each that is logged."""

from __future__ import annotations

from typing import Any

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import substitution_format_string_pb2
from envoy.extensions.access_loggers.stream.v3 import stream_pb2

from gatehouse.compiler.backends.envoy import names
from gatehouse.compiler.backends.envoy.kube_apiserver import stats
from gatehouse.compiler.backends.envoy.protobufs import packed, truth

_TOLD = (
    "cluster", "user", "groups", "impersonator", "verb", "group", "resource", "namespace", "name",
    "path", "policy", "schema",
)  # fmt: skip

_MEASURED = {
    "time": "%START_TIME%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "agent": "%REQ(USER-AGENT)%",
    "server": "%UPSTREAM_HOST%",
    "code": "%RESPONSE_CODE%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "flags": "%RESPONSE_FLAGS%",
    "milliseconds": "%DURATION%",
    "received": "%BYTES_RECEIVED%",
    "sent": "%BYTES_SENT%",
}


def log() -> Any:
    """Give the access log: to Envoy's standard output, of requests of logged policies alone."""
    line = substitution_format_string_pb2.SubstitutionFormatString()
    line.json_format.update(
        {name: f"%DYNAMIC_METADATA({names.SCRIPT}:request:{name})%" for name in _TOLD} | _MEASURED
    )
    made = accesslog_pb2.AccessLog(
        name="envoy.access_loggers.stdout",
        typed_config=packed(stream_pb2.StdoutAccessLog(log_format=line)),
    )
    held = accesslog_pb2.AccessLogFilter()
    wanted = held.metadata_filter
    wanted.matcher.filter = names.SCRIPT
    wanted.matcher.path.add(key="request")
    wanted.matcher.path.add(key="cluster")
    wanted.matcher.value.present_match = True
    wanted.match_if_key_not_found.CopyFrom(truth(False))
    made.filter.and_filter.filters.extend([stats.ended(), held])
    return made
