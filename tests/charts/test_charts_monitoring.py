"""Alert rules and dashboards of the chart: each alert begins and ends as documented, and each query
reads metrics and labels that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dashboards
import metric_families
import pytest
import yaml

from fakes import promtool
from fakes.administrator import HELM, SYSTEM, manifests

ROOT = Path(__file__).parents[2]
RULES = ROOT / "charts" / "gatehouse" / "monitoring" / "alerts.yaml"
ALERTS = {
    rule["alert"]: rule for group in yaml.load(RULES.read_text("utf-8"), yaml.CSafeLoader)["groups"]
    for rule in group["rules"]
}  # fmt: skip
INSTANCE = 'namespace="shop", gateway="web", pod="web-0"'
OTHER_INSTANCE = 'namespace="shop", gateway="web", pod="web-1"'
GATEWAY = {"namespace": "shop", "gateway": "web"}
POD = GATEWAY | {"pod": "web-0"}
ROUTE = 'namespace="shop", gateway="web", pod="web-0", route="shop/api/0"'
BACKEND = 'namespace="shop", gateway="web", pod="web-0", backend="Service/shop/api"'
SERVER = 'cluster="blue", server="10.0.0.1:6443"'
SCHEMA = 'cluster="blue", schema="pods"'
HOST = 'load_balancer="edge", host="a.example"'
HOST_LABELS = {"load_balancer": "edge", "host": "a.example"}

Series = dict[str, str]
CASES: dict[str, tuple[Series, Series, dict[str, str]]] = {
    "GatehouseNoLeader": (
        {'gatehouse_controller_leader{pod="a"}': "0x30"},
        {'gatehouse_controller_leader{pod="a"}': "0x30",
         'gatehouse_controller_leader{pod="b"}': "1x30"},
        {},
    ),
    "GatehouseStorageFull": (
        {'gatehouse_apiserver_storage_full{instance="a"}': "1x30"},
        {'gatehouse_apiserver_storage_full{instance="a"}': "0x30"},
        {"instance": "a"},
    ),
    "GatehouseDataPlaneNotReady": (
        {f"gatehouse_agent_ready{{{INSTANCE}}}": "0x30"},
        {f"gatehouse_agent_ready{{{INSTANCE}}}": "0x3 1x27"},
        POD,
    ),
    "GatehouseProxyNotResponding": (
        {f"gatehouse_agent_proxy_responding{{{INSTANCE}}}": "0x30"},
        {f"gatehouse_agent_proxy_responding{{{INSTANCE}}}": "1x30"},
        POD,
    ),
    "GatehouseProxyRestarts": (
        {f"gatehouse_agent_envoy_restarts_total{{{INSTANCE}}}": "0+1x30"},
        {f"gatehouse_agent_nginx_restarts_total{{{INSTANCE}}}": "0x30 1x30"},
        POD,
    ),
    "GatehouseAgentDisconnected": (
        {f"gatehouse_agent_control_plane_connected{{{INSTANCE}}}": "0x30"},
        {f"gatehouse_agent_control_plane_connected{{{INSTANCE}}}": "1x30"},
        POD,
    ),
    "GatehouseConfigurationsDiffer": (
        {f'gatehouse_agent_configuration_info{{{INSTANCE}, version="1"}}': "1x30",
         f'gatehouse_agent_configuration_info{{{OTHER_INSTANCE}, version="2"}}': "1x30"},
        {f'gatehouse_agent_configuration_info{{{INSTANCE}, version="1"}}': "1x30",
         f'gatehouse_agent_configuration_info{{{OTHER_INSTANCE}, version="1"}}': "1x30"},
        GATEWAY,
    ),
    "GatehouseApplyFailures": (
        {f"gatehouse_agent_apply_failures_total{{{INSTANCE}}}": "0x18 1x10"},
        {f"gatehouse_agent_apply_failures_total{{{INSTANCE}}}": "1x30"},
        GATEWAY,
    ),
    "GatehouseSidecarDown": (
        {f'gatehouse_agent_sidecar_desired{{{INSTANCE}, sidecar="reviewer"}}': "1x30",
         f'gatehouse_agent_sidecar_up{{{INSTANCE}, sidecar="reviewer"}}': "0x30"},
        {f'gatehouse_agent_sidecar_desired{{{INSTANCE}, sidecar="reviewer"}}': "0x30",
         f'gatehouse_agent_sidecar_up{{{INSTANCE}, sidecar="reviewer"}}': "0x30"},
        POD | {"sidecar": "reviewer"},
    ),
    "GatehouseLogEntriesDropped": (
        {f"gatehouse_agent_request_log_dropped_bytes_total{{{INSTANCE}}}": "0+100x30"},
        {f"gatehouse_agent_access_log_dropped_bytes_total{{{INSTANCE}}}": "100x30"},
        POD,
    ),
    "GatehouseCertificateExpires": (
        {f'gatehouse_certificate_not_after_timestamp_seconds{{{INSTANCE}, dns_name="a", '
         'fingerprint="1"}': "600000x30"},
        {f'gatehouse_certificate_not_after_timestamp_seconds{{{INSTANCE}, dns_name="a", '
         'fingerprint="1"}': "700000x30"},
        GATEWAY | {"dns_name": "a", "fingerprint": "1"},
    ),
    "GatehouseRouteErrors": (
        {f'gatehouse_route_requests_total{{{ROUTE}, status_class="5xx"}}': "0+6x30",
         f'gatehouse_route_requests_total{{{ROUTE}, status_class="2xx"}}': "0+94x30"},
        {f'gatehouse_route_requests_total{{{ROUTE}, status_class="5xx"}}': "0+4x30",
         f'gatehouse_route_requests_total{{{ROUTE}, status_class="2xx"}}': "0+96x30"},
        GATEWAY | {"route": "shop/api/0"},
    ),
    "GatehouseConnectionErrors": (
        {f'gatehouse_route_connections_total{{{ROUTE}, reason="no_endpoint"}}': "0+6x30",
         f'gatehouse_route_connections_total{{{ROUTE}, reason=""}}': "0+94x30"},
        {f'gatehouse_route_connections_total{{{ROUTE}, reason="no_endpoint"}}': "0+4x30",
         f'gatehouse_route_connections_total{{{ROUTE}, reason=""}}': "0+96x30"},
        GATEWAY | {"route": "shop/api/0"},
    ),
    "GatehouseBackendWithoutEndpoints": (
        {f"gatehouse_backend_endpoints{{{BACKEND}}}": "0x30"},
        {f"gatehouse_backend_endpoints{{{BACKEND}}}": "1x30"},
        GATEWAY | {"backend": "Service/shop/api"},
    ),
    "GatehouseBackendUnhealthy": (
        {f"gatehouse_backend_endpoints{{{BACKEND}}}": "3x30",
         f"gatehouse_backend_healthy_endpoints{{{BACKEND}}}": "1x30"},
        {f"gatehouse_backend_endpoints{{{BACKEND}}}": "0x30",
         f"gatehouse_backend_healthy_endpoints{{{BACKEND}}}": "0x30"},
        GATEWAY | {"backend": "Service/shop/api"},
    ),
    "GatehouseKubeServerNotReady": (
        {f"gatehouse_kube_server_healthy{{{SERVER}}}": "0x30"},
        {f"gatehouse_kube_server_healthy{{{SERVER}}}": "1x30"},
        {"cluster": "blue", "server": "10.0.0.1:6443"},
    ),
    "GatehouseKubeRequestsRejected": (
        {f"gatehouse_kube_rejected_requests_total{{{SCHEMA}}}": "0+6x30",
         f"gatehouse_kube_requests_total{{{SCHEMA}}}": "0+100x30"},
        {f"gatehouse_kube_rejected_requests_total{{{SCHEMA}}}": "0+4x30",
         f"gatehouse_kube_requests_total{{{SCHEMA}}}": "0+100x30"},
        {"cluster": "blue", "schema": "pods"},
    ),
    "GatehouseSharedLimitsUnavailable": (
        {'gatehouse_ratelimit_redis_up{instance="a"}': "0x30"},
        {'gatehouse_ratelimit_redis_up{instance="a"}': "1x30"},
        {"instance": "a"},
    ),
    "GatehouseLoadBalancerHostDown": (
        {f"gatehouse_controller_load_balancer_up{{{HOST}}}": "0x30"},
        {f"gatehouse_controller_load_balancer_up{{{HOST}}}": "1x30"},
        HOST_LABELS,
    ),
    "GatehouseLoadBalancerOutOfSync": (
        {f"gatehouse_controller_load_balancer_unsynced_upstreams{{{HOST}}}": "2x30"},
        {f"gatehouse_controller_load_balancer_unsynced_upstreams{{{HOST}}}": "0x30"},
        HOST_LABELS,
    ),
    "GatehouseNodeProxyDown": (
        {'gatehouse_node_proxy_proxy_up{instance="a"}': "0x30"},
        {'gatehouse_node_proxy_proxy_up{instance="a"}': "1x30",
         'gatehouse_node_proxy_configured{instance="a"}': "1x30"},
        {"instance": "a"},
    ),
}  # fmt: skip
"""Series for which an alert is active at the end, others for which it is not, and the
labels of the active alert."""


def rule_tests() -> dict[str, Any]:
    """Return the cases in the form of `promtool test rules`."""
    tests = [
        {
            "name": alert,
            "interval": "1m",
            "input_series": [{"series": key, "values": value} for key, value in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'ALERTS{{alertname="{alert}", alertstate="firing"}}',
                    "eval_time": "25m",
                    "exp_samples": [{"labels": sample(alert, labels), "value": 1}]
                    if active
                    else [],
                }
            ],
        }
        for alert, (begins, ends, labels) in CASES.items()
        for series, active in ((begins, True), (ends, False))
    ]
    return {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}


def sample(alert: str, labels: dict[str, str]) -> str:
    """Return the series that Prometheus has for an active alert."""
    severity = ALERTS[alert]["labels"]["severity"]
    names = labels | {"alertname": alert, "alertstate": "firing", "severity": severity}
    pairs = [f'{name}="{value}"' for name, value in names.items()]
    return f"ALERTS{{{', '.join(pairs)}}}"


async def test_alerts_begin_and_end(tmp_path: Path) -> None:
    assert CASES.keys() == ALERTS.keys()
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.dump(rule_tests(), Dumper=yaml.CSafeDumper), encoding="utf-8")
    assert (await promtool.run("test", "rules", str(path))).split()[-1] == "SUCCESS"
    # A case that is wrong fails.
    wrong = rule_tests()
    wrong["tests"] = wrong["tests"][:1]
    wrong["tests"][0]["promql_expr_test"][0]["exp_samples"] = []
    path.write_text(yaml.dump(wrong, Dumper=yaml.CSafeDumper), encoding="utf-8")
    assert "FAILED" in await promtool.run("test", "rules", str(path))


@pytest.mark.parametrize("alert", ALERTS)
def test_alert_has_a_section_of_the_runbook(alert: str) -> None:
    annotations = ALERTS[alert]["annotations"]
    page, _, anchor = annotations["runbook_url"].partition("#")
    assert anchor == alert.lower()
    _, _, rest = (ROOT / page).read_text("utf-8").partition(f"\n### {alert}\n")
    section = rest.partition("\n### ")[0]
    assert re.search(r"`(gatehouse|kubectl|df) [^`]+`", section), "no command to find the cause"
    assert annotations["summary"]
    assert annotations["description"].endswith(".")


FAMILIES = {family.series: family for group in metric_families.by_process().values()
            for family in group}  # fmt: skip
SCRAPE_LABELS = {"namespace", "gateway", "pod", "instance", "le"}
"""Labels of agents, of Prometheus, and of histograms."""

QUERIES = {
    **{f"alert {name}": str(rule["expr"]) for name, rule in ALERTS.items()},
    **{
        f"{dashboard.name}: {panel.title}, {query.legend}": query.query
        for dashboard in dashboards.dashboards()
        for panel in dashboard.panels
        for query in panel.queries
    },
    **{
        f"{dashboard.name}: variable {label}": f"{metric} {{{label}}}"
        for dashboard in dashboards.dashboards()
        for label, metric in dashboard.variables.items()
    },
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_query_reads_metrics_and_labels_that_exist(query: str) -> None:
    names = re.findall(r"\b(?:gatehouse|apiserver|nginx|envoy)_\w+", query)
    assert names
    known = set(SCRAPE_LABELS)
    for name in names:
        family = FAMILIES.get(name) or FAMILIES[name.removesuffix("_bucket")]
        known |= set(family.labels)
    labels = [
        label for listed in re.findall(r"by \(([^)]*)\)", query) for label in listed.split(",")
    ]
    labels += re.findall(r"(\w+)(?:=~|!=|=)\"", query)
    labels += re.findall(r"\{\{?(\w+)\}", query)
    assert {label.strip() for label in labels} <= known


def test_dashboards_are_fresh() -> None:
    files = {path.stem: path.read_text("utf-8") for path in dashboards.DIRECTORY.glob("*.json")}
    assert files == {item.name: dashboards.document(item) for item in dashboards.dashboards()}


@pytest.mark.skipif(HELM is None, reason="no helm: make helm")
def test_chart_has_rules_and_dashboards_as_options() -> None:
    options = ["metrics.alerts.enabled=true", "metrics.dashboards.enabled=true"]
    page = "https://wiki.example/alerts"
    options += [f"metrics.alerts.runbook={page}", "metrics.alerts.labels.team=edge"]
    objects = manifests(
        "gatehouse", *SYSTEM, *(word for option in options for word in ("--set", option))
    )
    [rules] = [item for item in objects if item["kind"] == "PrometheusRule"]
    assert rules["metadata"]["labels"]["team"] == "edge"
    expected = RULES.read_text("utf-8").replace("docs/tasks/alerts.md", page)
    assert rules["spec"] == yaml.load(expected, yaml.CSafeLoader)
    maps = [item for item in objects if item["metadata"]["labels"].get("grafana_dashboard") == "1"]
    content = {name: text for item in maps for name, text in item["data"].items()}
    assert content == {
        f"gatehouse-{item.name}.json": dashboards.document(item) for item in dashboards.dashboards()
    }
    assert not {"PrometheusRule", "PodMonitor"} & {
        item["kind"] for item in manifests("gatehouse", *SYSTEM)
    }
