"""What Envoy counts of requests for kube-apiservers, in the words of our metrics.

Envoy gives one label ``of`` with everything, and the text that the script of the back end wrote
(``verb:scope:resource``) in it; here they become labels. What belongs to one series is added up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

PREFIX = "gatehouse_kube."
"""How the names of these measurements begin in Envoy."""

BUCKETS = (5, 25, 100, 250, 500, 1_000, 5_000, 30_000, 60_000, 600_000)
"""Milliseconds."""

_OURS, _ENDPOINT = "envoy_gatehouse_kube_", "envoy_cluster_endpoint_"
_SERVERS = "kube_"
"""How Envoy writes the beginning of the names of clusters that are kube-apiservers."""

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
"""Why the gateway answered by itself: by Envoy's flag, and by code where there is none."""

_Labels = dict[str, str]

_FAMILIES = {
    "requests_total": ("counter", "Completed requests by status code."),
    "rejected_requests_total": ("counter", "Requests rejected by the gateway, by reason."),
    "request_duration_seconds": ("histogram", "Duration of requests that a policy allows."),
    "longrunning_requests": ("gauge", "Long-running requests in progress, such as watches."),
    "inflight_requests": ("gauge", "Requests in progress at servers."),
    "server_healthy": ("gauge", "1 if the server is ready, else 0."),
}


class _Samples:
    """Values by family and labels, in the order in which they came."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, float]] = {name: {} for name in _FAMILIES}

    def add(self, family: str, labels: _Labels, value: float, ending: str = "") -> None:
        shown = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels.items() if each)
        series = f"gatehouse_kube_{family}{ending}{{{shown}}}"
        samples = self._found[family]
        samples[series] = samples.get(series, 0.0) + value

    def lines(self) -> Iterator[str]:
        for family, samples in self._found.items():
            if not samples:
                continue
            kind, about = _FAMILIES[family]
            yield f"# HELP gatehouse_kube_{family} {about}"
            yield f"# TYPE gatehouse_kube_{family} {kind}"
            yield from (f"{series} {value:.15g}" for series, value in samples.items())


def renamed(text: str) -> str:
    """Give Envoy's text with these measurements as ours, in front of the others."""
    samples = _Samples()
    others: list[str] = []
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        name = found[1] if found else line.removeprefix("# TYPE ")
        if not name.startswith((_OURS, _ENDPOINT)):
            others.append(line)
        elif found and name in _COUNTED:
            labels = {key: _unescaped(value) for key, value in _LABEL.findall(found[2])}
            _COUNTED[name](samples, labels, float(found[3]))
    return "".join(f"{line}\n" for line in (*samples.lines(), *others))


def _request(samples: _Samples, labels: _Labels, value: float) -> None:
    code, flags, server, cluster, told = labels["of"].split("|", 4)
    about = _told(cluster, told)
    samples.add("requests_total", about | {"code": code, "server": server}, value)
    if reason := _reason(code, flags, server):
        refused = {"cluster": about["cluster"], "schema": about["schema"], "reason": reason}
        samples.add("rejected_requests_total", refused, value)


def _took(ending: str) -> Callable[[_Samples, _Labels, float], None]:
    def count(samples: _Samples, labels: _Labels, value: float) -> None:
        cluster, _, verb = labels["of"].partition("|")
        if not verb or ":" in verb:
            return
        found = {"cluster": unquote(cluster), "verb": verb.strip()}
        if "le" in labels:
            found["le"] = _seconds(labels["le"])
        scale = 1000 if ending == "_sum" else 1
        samples.add("request_duration_seconds", found, value / scale, ending)

    return count


def _long(samples: _Samples, labels: _Labels, value: float) -> None:
    cluster, _, told = labels["of"].partition("|")
    samples.add("longrunning_requests", _told(cluster, told), value)


def _in_flight(samples: _Samples, labels: _Labels, value: float) -> None:
    cluster, schema = _servers(labels["envoy_cluster_name"])
    server = labels["envoy_endpoint_address"]
    found = {"cluster": cluster, "schema": schema, "server": server}
    samples.add("inflight_requests", found, value)


def _healthy(samples: _Samples, labels: _Labels, value: float) -> None:
    name = labels["envoy_cluster_name"]
    # The other copies of a cluster's servers are asked seldom.
    if "/" not in name:
        server = labels["envoy_endpoint_address"]
        samples.add("server_healthy", {"cluster": _servers(name)[0], "server": server}, value)


_COUNTED = {
    f"{_OURS}requests": _request,
    f"{_OURS}milliseconds_bucket": _took("_bucket"),
    f"{_OURS}milliseconds_sum": _took("_sum"),
    f"{_OURS}milliseconds_count": _took("_count"),
    f"{_OURS}long_running": _long,
    f"{_ENDPOINT}rq_active": _in_flight,
    f"{_ENDPOINT}healthy": _healthy,
}


def _told(cluster: str, told: str) -> _Labels:
    """Read what the script said; nothing of it, of a request that no policy let through."""
    found = {"cluster": unquote(cluster), "verb": "", "resource": "", "schema": ""}
    verb, _, rest = told.partition(":")
    scope, _, resource = rest.partition(":")
    if resource:
        schema = unquote(scope.rpartition("/")[2])
        found |= {"verb": verb.strip(), "resource": resource, "schema": schema}
    return found


def _servers(name: str) -> tuple[str, str]:
    """Give the cluster and the schema that a cluster of Envoy stands for."""
    cluster, *more = name.removeprefix(_SERVERS).split("/")
    return unquote(cluster), unquote(more[1]) if len(more) > 1 else ""


def _reason(code: str, flags: str, server: str) -> str:
    """Say why the gateway answered by itself; empty if a server did, or nobody."""
    if not code.isdecimal() or int(code) < 400:
        return ""
    found = next((why for flag, why in _FLAGS.items() if flag in flags.split(",")), "")
    return found or ("" if server else _CODES.get(code, "other"))


def _seconds(bound: str) -> str:
    return bound if bound == "+Inf" else f"{float(bound) / 1000:g}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value)
