"""What is measured of the agent and its Envoy, in Prometheus' words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gatehouse.runtime.prometheus import Figure, families

FAMILIES = (
    r"^(cluster\..*\.(upstream_rq_(total|xx|[1-5]xx|time|timeout|retry|active|pending_overflow)"
    r"|upstream_cx_(total|active|connect_fail|overflow)|membership_(healthy|total))"
    r"|http\..*\.downstream_(rq_(total|xx|[1-5]xx|time|active)|cx_(total|active))"
    r"|listener\..*\.downstream_(cx_(total|active|overflow)|pre_cx_timeout)"
    r"|listener\..*\.(ssl\.(handshake|connection_error)|no_filter_chain_match)"
    r"|tcp\..*\.downstream_cx_(total|no_route)"
    r"|server\.(live|memory_allocated|uptime|total_connections|days_until_first_cert_expiring)"
    r"|gatehouse_kube\..*|cluster\..*\.endpoint\..*\.(healthy|rq_active)"
    r"|overload\..*|(cluster|listener)_manager\.[a-z_]+)$"
)
"""What is asked of Envoy, of hundreds of measurements of each cluster."""

BYTES_MAX = 8 << 20
"""How much is told; a scraper that gets more gives up, and then there is nothing."""

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")


class _Figures(Collector):
    def __init__(self, figures: Iterable[Figure], labels: Mapping[str, str]) -> None:
        self._figures = figures
        self._labels = labels

    def collect(self) -> Iterable[Metric]:
        return families(self._figures, self._labels)


def page(figures: Iterable[Figure], others: str, labels: Mapping[str, str]) -> bytes:
    """Give what /metrics answers: the agent's figures, and the text of what it runs."""
    registry = CollectorRegistry()
    registry.register(_Figures(tuple(figures), labels))
    return generate_latest(registry) + labelled(others, labels).encode()


def labelled(text: str, labels: Mapping[str, str]) -> str:
    """Give text with ``labels`` on every sample, cut after a whole line if it is large."""
    added = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items() if value)
    lines: list[str] = []
    size = 0
    for line in _lines(text, added):
        size += len(line) + 1
        if size > BYTES_MAX:
            lines.append("gatehouse_agent_proxy_metrics_truncated 1")
            break
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def _lines(text: str, added: str) -> Iterator[str]:
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is None:
            if line.startswith("#"):
                yield line
            continue
        name, own, value = found.groups()
        everything = ",".join(filter(None, (own, added)))
        yield f"{name}{{{everything}}} {value}" if everything else f"{name} {value}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
