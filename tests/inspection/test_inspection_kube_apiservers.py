"""Reports about UpstreamClusters: servers and why they are not ready, limits and their users."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from gatehouse.inspection.data_plane_metrics import MetricsPage
from gatehouse.inspection.kube_apiserver_report import ReportedApiCluster, report_api_clusters
from gatehouse.inspection.kube_apiserver_traffic import (
    MAX_RESOURCES,
    ApiTraffic,
    ApiTrafficMeter,
    MeasuredLimit,
    MeasuredServer,
)
from gatehouse.inspection.object_set import ObjectSet

_CLUSTER = """
apiVersion: proxy.kubegateway.io/v1alpha1
kind: UpstreamCluster
metadata: {name: prod.example}
spec:
  servers:
  - endpoint: https://10.0.0.1:6443
  - endpoint: https://10.0.0.2:6443
  - {endpoint: 'https://[fd00::3]', disabled: true}
  - endpoint: https://user:hidden-password@10.0.0.4
  clientConfig: {bearerToken: aGlkZGVuLXRva2Vu, keyData: aGlkZGVuLWtleQ==}
  secureServing: {keyData: aGlkZGVuLWtleQ==, certData: aGlkZGVuLWNlcnQ=}
  flowControl:
    flowControlSchemas:
    - {name: heavy, tokenBucket: {qps: 10, burst: 20}}
    - {name: all, maxRequestsInflight: {max: 400}}
    - {name: unused, maxRequestsInflight: {max: 1}}
  dispatchPolicies:
  - rules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*'], userGroups: ['system:masters']}]
  - rules:
    - {verbs: [list], apiGroups: [''], resources: [pods], users: [bob], userGroups: ['-dev']}
    - {verbs: [list], apiGroups: [''], resources: [secrets]}
    flowControlSchemaName: heavy
  - rules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]
    flowControlSchemaName: all
status:
  hosts: [prod.example]
  gateways:
  - gatewayRef: {namespace: edge, name: apis}
    hosts: [prod.example]
    conditions:
    - {type: Programmed, status: 'False', message: waiting for the data plane}
    - type: ServersReady
      status: 'False'
      message: '10.0.0.2:6443: status 500; etcd failed (at 1 of 2 data planes); 3 more'
"""


def cluster(**spec: Any) -> dict[str, Any]:
    result: dict[str, Any] = yaml.safe_load(_CLUSTER)
    result["spec"].update(spec)
    return result


def reported(*items: dict[str, Any]) -> tuple[ReportedApiCluster, ...]:
    return report_api_clusters(ObjectSet(list(items), [], ()))


def test_server_that_is_not_ready_has_the_reason_and_the_gateway() -> None:
    (report,) = reported(cluster())
    first, second, third, _ = report.servers
    assert (first.address, first.problems) == ("10.0.0.1:6443", ())
    assert second.problems == (
        "status 500; etcd failed (at 1 of 2 data planes); 3 more, at Gateway edge/apis",
    )
    assert (third.address, third.disabled) == ("[fd00::3]:443", True)


def test_gateway_has_the_reason_why_it_is_not_programmed() -> None:
    (report,) = reported(cluster())
    (gateway,) = report.gateways
    assert (gateway.gateway, gateway.programmed) == ("edge/apis", "False")
    assert (gateway.hosts, gateway.message) == (("prod.example",), "waiting for the data plane")


def test_limit_has_the_users_of_its_policies() -> None:
    (report,) = reported(cluster())
    limits = {limit.name: limit for limit in report.limits}
    assert limits.keys() == {"heavy", "all"}
    assert limits["heavy"].text == "10 requests a second, bursts of 20, at each data plane"
    assert limits["all"].text == "400 requests at a time at each data plane"
    (heavy,) = limits["heavy"].users
    assert (heavy.policy, heavy.users) == (1, ("users bob, groups anything but dev", "everybody"))
    assert [(user.policy, user.users) for user in report.unlimited] == [
        (0, ("groups system:masters",))
    ]


def test_no_report_contains_a_credential() -> None:
    text = msgspec.json.encode(reported(cluster())).decode()
    assert "hidden" not in text
    assert "aGlkZGVu" not in text
    assert "it contains a password" in text


@pytest.mark.parametrize("servers", ["none", [{"endpoint": 7}]])
def test_malformed_cluster_has_its_name_only(servers: object) -> None:
    assert reported(cluster(servers=servers)) == (ReportedApiCluster("prod.example"),)


def test_clusters_are_sorted_and_need_no_status() -> None:
    late, early = cluster(), cluster()
    early["metadata"]["name"] = "a.example"
    del early["status"]
    first, second = reported(late, early)
    assert (first.name, first.hosts, first.gateways) == ("a.example", (), ())
    assert second.name == "prod.example"


def page(pod: str, requests: int, rejected: int, in_flight: int, healthy: int) -> MetricsPage:
    labels, server = 'cluster="prod",schema="heavy"', 'server="10.0.0.1:6443"'
    of = f'{labels},verb="list",resource="pods",code="200",{server}'
    return MetricsPage(
        pod,
        f"""\
# TYPE gatehouse_kube_requests_total counter
gatehouse_kube_requests_total{{{of}}} {requests}
# TYPE gatehouse_kube_rejected_requests_total counter
gatehouse_kube_rejected_requests_total{{{labels},reason="limit_rate"}} {rejected}
# TYPE gatehouse_kube_inflight_requests gauge
gatehouse_kube_inflight_requests{{{labels},{server}}} {in_flight}
# TYPE gatehouse_kube_longrunning_requests gauge
gatehouse_kube_longrunning_requests{{{labels},verb="watch",resource="pods"}} 2
# TYPE gatehouse_kube_server_healthy gauge
gatehouse_kube_server_healthy{{cluster="prod",{server}}} {healthy}
""",
    )


def measured(*pages: tuple[MetricsPage, ...]) -> ApiTraffic:
    meter = ApiTrafficMeter()
    result = None
    for number, entry in enumerate(pages):
        result = meter.report(entry, 2.0 * number)
    assert result is not None
    return result


def test_first_reading_is_no_measurement() -> None:
    assert ApiTrafficMeter().report([page("edge/a", 1, 0, 0, 1)], 0.0) is None


def test_use_is_counted_by_server_limit_and_data_plane() -> None:
    lost = MetricsPage("edge/c", problem="has no address yet")
    report = measured(
        (page("edge/a", 10, 0, 1, 1), page("edge/b", 5, 0, 0, 1), lost),
        (page("edge/a", 30, 4, 3, 1), page("edge/b", 5, 0, 2, 0), lost),
    )
    assert (report.data_planes, report.seconds) == (2, 2.0)
    assert report.servers == (MeasuredServer("prod", "10.0.0.1:6443", 1, 2, 5, 10.0),)
    assert report.limits == (
        MeasuredLimit("prod", "heavy", "edge/a", 3, 2, 10.0, {"limit_rate": 2.0}),
        MeasuredLimit("prod", "heavy", "edge/b", 2, 2, 0.0, {}),
    )
    (resource,) = report.resources
    assert (resource.verb, resource.resource, resource.requests_per_second) == ("list", "pods", 10)
    assert report.problems == ("edge/c: has no address yet",)


def test_each_limit_has_its_busiest_resources_only() -> None:
    def busy(factor: int) -> MetricsPage:
        lines = [
            f'gatehouse_kube_requests_total{{cluster="prod",schema="{schema}",verb="get",'
            f'resource="r{number}"}} {number * factor}'
            for schema in ("heavy", "all")
            for number in range(MAX_RESOURCES + 5)
        ]
        header = "# TYPE gatehouse_kube_requests_total counter"
        return MetricsPage("edge/a", "\n".join([header, *lines, ""]))

    report = measured((busy(1),), (busy(3),))
    assert len(report.resources) == 2 * MAX_RESOURCES
    assert report.resources[0].resource == f"r{MAX_RESOURCES + 4}"
    assert {item.resource for item in report.resources}.isdisjoint({f"r{n}" for n in range(5)})


def test_page_that_is_no_metrics_is_an_error() -> None:
    with pytest.raises(ValueError):
        ApiTrafficMeter().report([MetricsPage("edge/a", "{broken")], 0.0)
