"""Conversion of Envoy's statistics of kube-apiserver requests to Gatehouse metrics.

Envoy puts everything into one label `of`, including the text `verb:scope:resource` from the back
end's Lua script. Here its parts become labels, and values of the same series are added up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from gatehouse.runtime import prometheus

KUBE_STATS_PREFIX = "gatehouse_kube."
"""Prefix of these statistics in Envoy."""

BUCKETS = (5, 25, 100, 250, 500, 1_000, 5_000, 30_000, 60_000, 600_000)
"""Histogram buckets in milliseconds."""

_KUBE, _ENDPOINT = "envoy_gatehouse_kube_", "envoy_cluster_endpoint_"
_SERVERS = "kube_"
"""Prefix in Envoy of the names of clusters that are kube-apiservers."""

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

_FLAGS = {
    "UO": "limit_in_flight",
    "RL": "limit_rate",
    "UH": "no_ready_server",
    "NR": "changing",
    "UF": "server_unreachable",
    "URX": "server_unreachable",
    "UC": "connection_lost",
    "UR": "connection_lost",
    "UPE": "connection_lost",
}
_CODES = {
    "401": "unauthorized",
    "403": "forbidden",
    "400": "bad_request",
    "421": "misdirected",
    "429": "denied",
    "500": "internal",
    "503": "reviewer_away",
}
"""Reasons for which the gateway rejected a request: by Envoy's flag, otherwise by status code."""

_Labels = dict[str, str]

_FAMILIES = {
    "requests_total": ("counter", "Completed requests by status code."),
    "rejected_requests_total": ("counter", "Requests rejected by the gateway."),
    "request_duration_seconds": ("histogram", "Duration of requests allowed by a policy."),
    "longrunning_requests": ("gauge", "Long-running requests in progress."),
    "inflight_requests": ("gauge", "Requests in progress at servers."),
    "server_healthy": ("gauge", "1 if the server is ready, else 0."),
}


class _Samples:
    """Values by family and labels, in order of arrival."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, float]] = {name: {} for name in _FAMILIES}

    def add(self, family: str, labels: _Labels, value: float, ending: str = "") -> None:
        series = f"gatehouse_kube_{family}{ending}{{{prometheus.label_text(labels)}}}"
        samples = self._values[family]
        samples[series] = samples.get(series, 0.0) + value

    def lines(self) -> Iterator[str]:
        for family, samples in self._values.items():
            if not samples:
                continue
            kind, about = _FAMILIES[family]
            yield from prometheus.family_header(f"gatehouse_kube_{family}", kind, about)
            yield from (f"{series} {value:.15g}" for series, value in samples.items())


def convert(text: str) -> str:
    """Return these statistics in Envoy's text as Gatehouse metrics. Others are left out."""
    samples = _Samples()
    for line in text.splitlines():
        if (match := _SAMPLE.match(line)) and match[1] in _HANDLERS:
            labels = {key: _unescape(value) for key, value in _LABEL.findall(match[2])}
            _HANDLERS[match[1]](samples, labels, float(match[3]))
    return "".join(f"{line}\n" for line in samples.lines())


def _request(samples: _Samples, labels: _Labels, value: float) -> None:
    code, flags, server, cluster, text = labels["of"].split("|", 4)
    about = _request_labels(cluster, text)
    samples.add("requests_total", about | {"code": code, "server": server}, value)
    if reason := _reason(code, flags, server):
        refused = {"cluster": about["cluster"], "schema": about["schema"], "reason": reason}
        samples.add("rejected_requests_total", refused, value)


def _duration(ending: str) -> Callable[[_Samples, _Labels, float], None]:
    def count(samples: _Samples, labels: _Labels, value: float) -> None:
        cluster, _, verb = labels["of"].partition("|")
        if not verb or ":" in verb:
            return
        series = {"cluster": unquote(cluster), "verb": verb.strip()}
        if "le" in labels:
            series["le"] = _bucket_bound(labels["le"])
        scale = 1000 if ending == "_sum" else 1
        samples.add("request_duration_seconds", series, value / scale, ending)

    return count


def _long_running(samples: _Samples, labels: _Labels, value: float) -> None:
    cluster, _, text = labels["of"].partition("|")
    samples.add("longrunning_requests", _request_labels(cluster, text), value)


def _in_flight(samples: _Samples, labels: _Labels, value: float) -> None:
    cluster, schema = _cluster_and_schema(labels["envoy_cluster_name"])
    server = labels["envoy_endpoint_address"]
    series = {"cluster": cluster, "schema": schema, "server": server}
    samples.add("inflight_requests", series, value)


def _healthy(samples: _Samples, labels: _Labels, value: float) -> None:
    name = labels["envoy_cluster_name"]
    # The other copies of a cluster's servers are checked rarely.
    if "/" not in name:
        server = labels["envoy_endpoint_address"]
        samples.add(
            "server_healthy", {"cluster": _cluster_and_schema(name)[0], "server": server}, value
        )


_HANDLERS = {
    f"{_KUBE}requests": _request,
    f"{_KUBE}milliseconds_bucket": _duration("_bucket"),
    f"{_KUBE}milliseconds_sum": _duration("_sum"),
    f"{_KUBE}milliseconds_count": _duration("_count"),
    f"{_KUBE}long_running": _long_running,
    f"{_ENDPOINT}rq_active": _in_flight,
    f"{_ENDPOINT}healthy": _healthy,
}


def _request_labels(cluster: str, text: str) -> _Labels:
    """Parse the script's text. The labels are empty for a request that no policy let through."""
    labels = {"cluster": unquote(cluster), "verb": "", "resource": "", "schema": ""}
    verb, _, rest = text.partition(":")
    scope, _, resource = rest.partition(":")
    if resource:
        schema = unquote(scope.rpartition("/")[2])
        labels |= {"verb": verb.strip(), "resource": resource, "schema": schema}
    return labels


def _cluster_and_schema(name: str) -> tuple[str, str]:
    """Return the kube-apiserver cluster and the schema that an Envoy cluster stands for."""
    cluster, *more = name.removeprefix(_SERVERS).split("/")
    return unquote(cluster), unquote(more[1]) if len(more) > 1 else ""


def _reason(code: str, flags: str, server: str) -> str:
    """Return why the gateway rejected a request. Empty if a server responded or none did."""
    if not code.isdecimal() or int(code) < 400:
        return ""
    reason = next((why for flag, why in _FLAGS.items() if flag in flags.split(",")), "")
    return reason or ("" if server else _CODES.get(code, "other"))


def _bucket_bound(bound: str) -> str:
    return bound if bound == "+Inf" else f"{float(bound) / 1000:g}"


def _unescape(value: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], value)
