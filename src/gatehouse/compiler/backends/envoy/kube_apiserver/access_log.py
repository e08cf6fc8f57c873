"""Access log of requests for kube-apiservers: one JSON object per logged request."""

from __future__ import annotations

from envoy.config.accesslog.v3 import accesslog_pb2

from gatehouse.compiler.backends.envoy import log_entries, names
from gatehouse.compiler.backends.envoy.kube_apiserver import stats
from gatehouse.compiler.backends.envoy.protobufs import truth

_SCRIPT_FIELDS = (
    "cluster", "user", "groups", "impersonator", "verb", "group", "resource", "namespace", "name",
    "path", "policy", "schema",
)  # fmt: skip

_ENVOY_FIELDS = log_entries.OF_REQUESTS | {
    # In place of a reason. The metrics have reasons, which the agent derives from these fields.
    "details": "%RESPONSE_CODE_DETAILS%",
    "flags": "%RESPONSE_FLAGS%",
}


def log() -> accesslog_pb2.AccessLog:
    """Return the access log to Envoy's standard output, for requests of logged policies only."""
    proto = log_entries.entry_log(
        {name: f"%DYNAMIC_METADATA({names.SCRIPT}:request:{name})%" for name in _SCRIPT_FIELDS}
        | _ENVOY_FIELDS
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
