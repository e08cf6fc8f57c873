"""Metrics of requests for kube-apiservers, counted by Envoy with labels.

The script writes the properties of a request into the scope header
(:func:`names.scope_header_value`), which needs no additional call into Envoy. A filter stores it
until the request ends, when the header has been removed. The agent converts the labels to those of
Gatehouse's metrics (:mod:`gatehouse.agent.envoy`).
"""

from __future__ import annotations

from collections.abc import Iterator

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.data.accesslog.v3 import accesslog_pb2 as data_pb2
from envoy.extensions.filters.http.set_filter_state.v3 import set_filter_state_pb2
from xds.type.v3 import typed_struct_pb2

from gatehouse.compiler.backends.envoy import names, quoting
from gatehouse.compiler.backends.envoy.protobufs import Json, packed

FILTER_STATE_FILTER = "envoy.filters.http.set_filter_state"

STATS_PERIOD_SECONDS = 5.0
"""Seconds after which a request counts as long-running."""

_LIMITS: dict[str, Json] = {
    "prefix": "gatehouse_kube", "max_counters": 10_000, "max_gauges": 2_000, "max_histograms": 50,
}  # fmt: skip
"""Limits of one cluster: the statistics that clients can create in Envoy are bounded."""

_STATE_KEY = "gatehouse.told"
_REQUEST = f"%FILTER_STATE({_STATE_KEY}:PLAIN)%"
_VERB = f"%FILTER_STATE({_STATE_KEY}:PLAIN):{names.VERB_WIDTH}%"

_Filter = accesslog_pb2.AccessLogFilter


def idle_filter() -> set_filter_state_pb2.Config:
    """Return the filter, after the script, for requests that stay in the scope of arrival."""
    return set_filter_state_pb2.Config()


def store_filter() -> set_filter_state_pb2.Config:
    """Return the filter of routes that the script selects: it stores the scope header.

    Before, the header contains client input: the number of labels would be unbounded.
    """
    proto = idle_filter()
    value = proto.on_request_headers.add(object_key=_STATE_KEY, factory_key="envoy.string")
    value.format_string.text_format_source.inline_string = f"%REQ({names.SCOPE_HEADER})%"
    return proto


def loggers(cluster: str) -> Iterator[accesslog_pb2.AccessLog]:
    """Yield the loggers that count the requests of a cluster."""
    name = quoting.escape_percent(names.plain(cluster))
    tags = f"%RESPONSE_CODE%|%RESPONSE_FLAGS%|%UPSTREAM_HOST%|{name}|{_REQUEST}"
    requests: Json = {"stat": _stat("requests", tags), "value_fixed": 1}
    durations: Json = {
        "stat": _stat("milliseconds", f"{name}|{_VERB}"),
        "unit": "Milliseconds",
        "value_format": "%DURATION%",
    }
    yield _logger(ended(), counters=[requests], histograms=[durations])
    long_running: Json = {
        "stat": _stat("long_running", f"{name}|{_REQUEST}"),
        "value_fixed": 1,
        "add_subtract": {"add_log_type": "DownstreamPeriodic", "sub_log_type": "DownstreamEnd"},
    }
    yield _logger(_first_period(), gauges=[long_running])


def ended() -> accesslog_pb2.AccessLogFilter:
    """Match requests at their end, not the periodic entries of long-running ones."""
    return _of_type(data_pb2.DownstreamEnd)


def _first_period() -> accesslog_pb2.AccessLogFilter:
    # Envoy adds in every period, and subtracts once.
    proto, first = _Filter(), _Filter()
    first.duration_filter.comparison.op = accesslog_pb2.ComparisonFilter.LE
    first.duration_filter.comparison.value.default_value = int(STATS_PERIOD_SECONDS * 1500)
    first.duration_filter.comparison.value.runtime_key = "gatehouse.unused"
    proto.and_filter.filters.extend([_of_type(data_pb2.DownstreamPeriodic), first])
    return proto


def _of_type(kind: data_pb2.AccessLogType) -> accesslog_pb2.AccessLogFilter:
    proto = _Filter()
    proto.log_type_filter.types.append(kind)
    return proto


def _logger(
    log_filter: accesslog_pb2.AccessLogFilter, **stats: list[Json]
) -> accesslog_pb2.AccessLog:
    """Return a logger, written by field names: the generated classes lack the newer fields."""
    config = typed_struct_pb2.TypedStruct(
        type_url="type.googleapis.com/envoy.extensions.access_loggers.stats.v3.Config"
    )
    fields: dict[str, Json] = {"stats_scope": _LIMITS, **stats}
    config.value.update(fields)
    return accesslog_pb2.AccessLog(
        name="envoy.access_loggers.stats", filter=log_filter, typed_config=packed(config)
    )


def _stat(name: str, of: str) -> Json:
    # One label of several elements: each label costs more than its elements.
    return {"name": name, "tags": [{"name": "of", "value_format": of}]}
