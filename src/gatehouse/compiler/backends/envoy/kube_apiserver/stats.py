"""What is counted of requests for kube-apiservers: by Envoy itself, with labels.

The script says what a request is in the header that names its scope (:func:`names.told`), which
costs no look into Envoy more; a filter keeps that until the request ends, when the header is long
gone. The labels are put in the words of our metrics by the agent (:mod:`gatehouse.agent.envoy`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.data.accesslog.v3 import accesslog_pb2 as data_pb2
from envoy.extensions.filters.http.set_filter_state.v3 import set_filter_state_pb2
from xds.type.v3 import typed_struct_pb2

from gatehouse.compiler.backends.envoy import names, quoting
from gatehouse.compiler.backends.envoy.protobufs import packed

FILTER = "envoy.filters.http.set_filter_state"

PERIOD = 5.0
"""Seconds after which a request is one that takes long."""

_BOUND = {
    "prefix": "gatehouse_kube", "max_counters": 10_000, "max_gauges": 2_000, "max_histograms": 50,
}  # fmt: skip
"""Of one cluster: what a client makes Envoy remember has an end, whatever it asks for."""

_KEPT = "gatehouse.told"
_TOLD = f"%FILTER_STATE({_KEPT}:PLAIN)%"
_VERB = f"%FILTER_STATE({_KEPT}:PLAIN):{names.VERB_WIDTH}%"

_Filter = accesslog_pb2.AccessLogFilter


def keeping_nothing() -> Any:
    """Give the filter, after the script, for requests that go no further than where they arrive."""
    return set_filter_state_pb2.Config()


def keeping() -> Any:
    """Give that filter as routes have it that the script chose: it keeps what the script said.

    Before that, clients have a part in the text: what is counted would have no end.
    """
    made = keeping_nothing()
    value = made.on_request_headers.add(object_key=_KEPT, factory_key="envoy.string")
    value.format_string.text_format_source.inline_string = f"%REQ({names.SCOPE_HEADER})%"
    return made


def loggers(cluster: str) -> Iterator[Any]:
    """Give what counts the requests of a cluster."""
    name = quoting.literal(names.plain(cluster))
    answered = f"%RESPONSE_CODE%|%RESPONSE_FLAGS%|%UPSTREAM_HOST%|{name}|{_TOLD}"
    requests = {"stat": _stat("requests", answered), "value_fixed": 1}
    took = {
        "stat": _stat("milliseconds", f"{name}|{_VERB}"),
        "unit": "Milliseconds",
        "value_format": "%DURATION%",
    }
    yield _logger(ended(), counters=[requests], histograms=[took])
    long_ones = {
        "stat": _stat("long_running", f"{name}|{_TOLD}"),
        "value_fixed": 1,
        "add_subtract": {"add_log_type": "DownstreamPeriodic", "sub_log_type": "DownstreamEnd"},
    }
    yield _logger(_first_period(), gauges=[long_ones])


def ended() -> Any:
    """Hold requests at their end, not those that take long and are told of meanwhile."""
    return _of_type(data_pb2.DownstreamEnd)


def _first_period() -> Any:
    # Envoy adds at every period, and takes away once.
    made, first = _Filter(), _Filter()
    first.duration_filter.comparison.op = accesslog_pb2.ComparisonFilter.LE
    first.duration_filter.comparison.value.default_value = int(PERIOD * 1500)
    first.duration_filter.comparison.value.runtime_key = "gatehouse.unused"
    made.and_filter.filters.extend([_of_type(data_pb2.DownstreamPeriodic), first])
    return made


def _of_type(kind: Any) -> Any:
    made = _Filter()
    made.log_type_filter.types.append(kind)
    return made


def _logger(held: Any, **stats: list[dict[str, Any]]) -> Any:
    """Give a logger, written by the names of fields: the classes we have lack the newer ones."""
    config = typed_struct_pb2.TypedStruct(
        type_url="type.googleapis.com/envoy.extensions.access_loggers.stats.v3.Config"
    )
    config.value.update({"stats_scope": _BOUND, **stats})
    return accesslog_pb2.AccessLog(
        name="envoy.access_loggers.stats", filter=held, typed_config=packed(config)
    )


def _stat(name: str, of: str) -> dict[str, Any]:
    # One label of many words: each label costs more than its words do.
    return {"name": name, "tags": [{"name": "of", "value_format": of}]}
