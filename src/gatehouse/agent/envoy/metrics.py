"""Prometheus metrics of the Envoy agent and its Envoy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from gatehouse.runtime import prometheus
from gatehouse.runtime.prometheus import Sample

ENVOY_PAGE = "/metrics/envoy"
"""Path of the page with Envoy's own metrics. Their names and types break Prometheus' conventions,
and they have no help."""

CONVERTED = (
    r"^(gatehouse_kube\..*|cluster\..*\.endpoint\..*\.(healthy|rq_active)"
    r"|cluster\..*\.membership_(healthy|total))$"
)
"""Filter of the statistics that the agent converts to metrics with its own names."""

FAMILIES = (
    r"^(cluster\..*\.(upstream_rq_(total|xx|[1-5]xx|time|timeout|retry|active|pending_overflow)"
    r"|upstream_cx_(total|active|connect_fail|overflow)|membership_(healthy|total))"
    r"|http\..*\.downstream_(rq_(total|xx|[1-5]xx|time|active)|cx_(total|active))"
    r"|listener\..*\.downstream_(cx_(total|active|overflow)|pre_cx_timeout)"
    r"|listener\..*\.(ssl\.(handshake|connection_error)|no_filter_chain_match)"
    r"|tcp\..*\.downstream_cx_(total|no_route)"
    r"|server\.(live|memory_allocated|uptime|total_connections|days_until_first_cert_expiring)"
    r"|overload\..*|(cluster|listener)_manager\.[a-z_]+)$"
)
"""Filter of the statistics that are exported unchanged, out of hundreds for each cluster."""

_NO_CERTIFICATE = "4294967295"
"""Number of days until a certificate expires if Envoy has none."""

_EXPIRY = "envoy_server_days_until_first_cert_expiring"

_MAX_BYTES = 8 << 20
"""Maximum size of Envoy's text in bytes. A scraper would reject a larger page as a whole."""

TRUNCATED = "gatehouse_agent_proxy_metrics_truncated"
"""Name of the metric that ends a cut page."""

TRUNCATED_HELP = "1 if Envoy's metrics were cut at the maximum size. Missing otherwise."

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")


def page(samples: Iterable[Sample], text: str, labels: Mapping[str, str]) -> bytes:
    """Return the /metrics page: the agent's samples and the text of its processes."""
    own = prometheus.format_samples(samples, labels)
    return (own + add_labels(text, labels)).encode()


def raw_page(text: str, labels: Mapping[str, str]) -> bytes:
    """Return the page with Envoy's statistics under their own names."""
    lines = (
        line
        for line in text.splitlines()
        if not (line.startswith(_EXPIRY) and line.endswith(f" {_NO_CERTIFICATE}"))
    )
    return add_labels("\n".join(lines), labels).encode()


def add_labels(text: str, labels: Mapping[str, str]) -> str:
    """Return `text` with `labels` added to every sample, cut after a complete line if too large."""
    added = prometheus.label_text(labels)
    lines: list[str] = []
    size = 0
    for line in _lines(text, added):
        size += len(line) + 1
        if size > _MAX_BYTES:
            lines += (
                *prometheus.family_header(TRUNCATED, "gauge", TRUNCATED_HELP),
                f"{TRUNCATED} 1",
            )
            break
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def _lines(text: str, added: str) -> Iterator[str]:
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            if line.startswith("#"):
                yield line
            continue
        name, own, value = match.groups()
        all_labels = ",".join(filter(None, (own, added)))
        yield f"{name}{{{all_labels}}} {value}" if all_labels else f"{name} {value}"
