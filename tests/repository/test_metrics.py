"""Every metric family that the code defines follows the conventions of Prometheus."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import metric_families
import pytest

from fakes import promtool, source_trees

DEFINITIONS = {
    "Sample",
    "Counter",
    "Gauge",
    "Histogram",
    "GaugeMetricFamily",
    "CounterMetricFamily",
}
LIBRARIES = ("prometheus_client", "gatehouse.runtime.prometheus")

NOT_BASE_UNITS = ("_milliseconds", "_microseconds", "_minutes", "_hours", "_kilobytes", "_percent")
DIALECT = ("in_order", "asked", "kept", "wanted", "companion", "looks", "behind", "agreed", "cut")


FAMILIES = {
    family.name: family for families in metric_families.by_process().values() for family in families
}


def test_walk_finds_all_prefixes() -> None:
    assert {
        "gatehouse_controller_compile_duration_seconds",
        "gatehouse_controller_load_balancer_last_sync_timestamp_seconds",
        "gatehouse_agent_control_plane_connected",
        "gatehouse_agent_apply_duration_seconds",
        "gatehouse_agent_sidecar_up",
        "gatehouse_kube_request_duration_seconds",
        "gatehouse_kube_rejected_requests",
        "gatehouse_node_proxy_configured",
        "gatehouse_ratelimit_requests",
        "gatehouse_reviewer_cache_entries",
        "gatehouse_apiserver_storage_revision",
        "apiserver_request",
        "nginx_plus_http_server_requests",
    } <= set(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_metric_follows_conventions(name: str) -> None:
    metric = FAMILIES[name]
    assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", name)
    # The library adds _total to the samples of counters, and only to these.
    assert not name.endswith(("_total", "_count", "_sum", "_bucket"))
    assert not name.endswith(NOT_BASE_UNITS)
    assert metric.kind in ("gauge", "counter", "histogram", "unknown")
    if metric.kind == "histogram":
        assert name.endswith("_duration_seconds")
    if name.endswith("_timestamp_seconds"):
        assert metric.help.startswith("Unix time")
    assert not set(DIALECT) & {*name.split("_"), *re.findall("in_order", name)}


@pytest.mark.parametrize("name", FAMILIES)
def test_metric_help_is_a_sentence(name: str) -> None:
    text = FAMILIES[name].help
    assert re.match(r"[A-Z1]|xDS", text), text
    assert text.endswith("."), text
    assert not re.match(r"(What|Whether|How|When|Who)\b", text), text


def defined() -> Iterator[tuple[str, str]]:
    """Yield the place and a pattern of the name of each metric that the source defines."""
    for path in source_trees.modules():
        text = path.read_text("utf-8")
        if not any(library in text for library in LIBRARIES):
            continue
        tree = ast.parse(text)
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(LIBRARIES)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            if node.func.id in DEFINITIONS & imported:
                yield f"{path.name}:{node.lineno}", pattern(node.args[0])


def pattern(name: ast.expr) -> str:
    match name:
        case ast.Constant(value=str(text)):
            return re.escape(text)
        case ast.JoinedStr(values=parts):
            return "".join(pattern(part) for part in parts)
    return ".+"


def test_walk_finds_every_definition() -> None:
    definitions = list(defined())
    assert len(definitions) > 40, "the walk finds calls"
    for place, name in definitions:
        assert any(re.fullmatch(name, family_name) for family_name in FAMILIES), f"{place}: {name}"


@pytest.mark.parametrize("name", FAMILIES)
def test_metric_is_on_the_reference_page(name: str) -> None:
    page = (source_trees.ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    assert f"| `{FAMILIES[name].series}` |" in page


def page(process: str) -> str:
    """Return a page with a sample of each metric of a kind of process."""
    lines: list[str] = []
    for metric in metric_families.by_process()[process]:
        kind = "untyped" if metric.kind == "unknown" else metric.kind
        lines += [f"# HELP {metric.series} {metric.help}", f"# TYPE {metric.series} {kind}"]
        labels = [f'{label}="x"' for label in metric.labels]
        bucket = ",".join([*labels, 'le="+Inf"'])
        lines += (
            [f"{metric.series}_bucket{{{bucket}}} 1"]
            + [f"{metric.series}{ending}{{{','.join(labels)}}} 1" for ending in ("_sum", "_count")]
            if metric.kind == "histogram"
            else [f"{metric.series}{{{','.join(labels)}}} 1"]
        )
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("process", metric_families.by_process())
async def test_prometheus_finds_no_problem_in_the_metrics(process: str) -> None:
    assert await promtool.check(page(process)) == ""
