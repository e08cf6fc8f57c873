"""Access log of requests for kube-apiservers: one JSON object per logged request."""

from __future__ import annotations

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import substitution_format_string_pb2
from envoy.extensions.access_loggers.stream.v3 import stream_pb2

from gatehouse.compiler.backends.envoy import names
from gatehouse.compiler.backends.envoy.kube_apiserver import stats
from gatehouse.compiler.backends.envoy.protobufs import packed, truth

_SCRIPT_FIELDS = (
    "cluster", "user", "groups", "impersonator", "verb", "group", "resource", "namespace", "name",
    "path", "policy", "schema",
)  # fmt: skip

_ENVOY_FIELDS = {
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


def log() -> accesslog_pb2.AccessLog:
    """Return the access log to Envoy's standard output, for requests of logged policies only."""
    line = substitution_format_string_pb2.SubstitutionFormatString()
    line.json_format.update(
        {name: f"%DYNAMIC_METADATA({names.SCRIPT}:request:{name})%" for name in _SCRIPT_FIELDS}
        | _ENVOY_FIELDS
    )
    proto = accesslog_pb2.AccessLog(
        name="envoy.access_loggers.stdout",
        typed_config=packed(stream_pb2.StdoutAccessLog(log_format=line)),
    )
    has_cluster = accesslog_pb2.AccessLogFilter()
    metadata_filter = has_cluster.metadata_filter
    metadata_filter.matcher.filter = names.SCRIPT
    metadata_filter.matcher.path.add(key="request")
    metadata_filter.matcher.path.add(key="cluster")
    metadata_filter.matcher.value.present_match = True
    metadata_filter.match_if_key_not_found.CopyFrom(truth(False))
    proto.filter.and_filter.filters.extend([stats.ended(), has_cluster])
    return proto
