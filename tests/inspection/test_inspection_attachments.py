"""Kube-apiservers in the status and its tree: their Gateways, listeners and endpoints."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.hosted_objects import gateway, served
from fakes.hosting import Place
from gatehouse.cli.status import select_objects, with_ancestors
from gatehouse.cli.status_rendering import status_lines, tree_lines
from gatehouse.inspection.object_set import ObjectSet
from gatehouse.inspection.status_report import ReportedObject, report_status

Object = dict[str, Any]

CLASS = {
    "kind": "GatewayClass", "metadata": {"name": "gatehouse-envoy"},
    "spec": {"controllerName": "gatehouse.dev/envoy"},
}  # fmt: skip
NAMESPACES = [{"kind": "Namespace", "metadata": {"name": name}} for name in ("default", "infra")]


def upstream_cluster(name: str, annotations: Object | None = None, **status: Any) -> Object:
    servers = [{"endpoint": "https://10.0.0.1:6443"}, {"endpoint": "https://10.0.0.2:6443"},
               {"endpoint": "https://10.0.0.3:6443", "disabled": True}]  # fmt: skip
    metadata = {"name": name, "annotations": annotations or {}}
    spec = {"servers": servers, "secureServing": {}}
    return {"kind": "UpstreamCluster", "metadata": metadata, "spec": spec, "status": status}


def cluster_gateway() -> Object:
    listener = {"name": "apis", "port": 6443, "protocol": "gatehouse.dev/KubeAPIServer",
                "tls": {"mode": "Terminate", "certificateRefs": [{"name": "web"}]}}  # fmt: skip
    return {
        "kind": "Gateway", "metadata": {"name": "clusters", "namespace": "infra"},
        "spec": {"gatewayClassName": "gatehouse-envoy", "listeners": [listener]},
    }  # fmt: skip


@pytest.fixture
def report() -> tuple[ReportedObject, ...]:
    unready = {"type": "ServersReady", "status": "False", "reason": "ServersNotReady",
               "message": "10.0.0.2:6443: connection refused"}  # fmt: skip
    where = {"namespace": "infra", "name": "clusters"}
    prod = upstream_cluster(
        "prod.example", hosts=["prod.example"],
        gateways=[{"gatewayRef": where, "conditions": [unready]}],
    )  # fmt: skip
    lost = upstream_cluster("lost.example", {"gatehouse.dev/gateways": "infra/none"})
    objects = [CLASS, *NAMESPACES, gateway(), cluster_gateway(), prod, lost]
    for name, address, parent in (
        ("one", "10.1.0.1", "apis"),
        ("two", "10.1.0.2", "apis"),
        ("astray", "10.1.0.3", "none"),
    ):
        items = served(Place(name, 6443, (address,)), parent)
        objects += items if name != "two" else [items[0], items[2]]
    return report_status(ObjectSet(objects, [], ()))


def tree(report: tuple[ReportedObject, ...], namespace: str = "", *names: str) -> list[str]:
    selected = select_objects(report, namespace, names)
    return list(tree_lines(with_ancestors(selected, report)))


ONE = [
    "      HostedAPIServer default/one api.one.test",
    "        Service default/one: 1 of 1 endpoints ready",
    "          127.0.0.1:6443: ready",
]
PROD = [
    "  Gateway infra/clusters: Programmed Unknown",
    "    ! no status yet: no controller manages gatehouse-envoy",
    "    listener apis 6443/gatehouse.dev/KubeAPIServer: Programmed Unknown, routes unknown",
    "      UpstreamCluster prod.example prod.example",
    "        https://10.0.0.1:6443: ready",
    "        https://10.0.0.2:6443: connection refused, at Gateway infra/clusters",
    "        https://10.0.0.3:6443: disabled",
]
LOST = [
    "  UpstreamCluster lost.example",
    "    https://10.0.0.1:6443: not checked",
    "    https://10.0.0.2:6443: not checked",
    "    https://10.0.0.3:6443: disabled",
]
HEADER = "GatewayClass gatehouse-envoy (gatehouse.dev/envoy)"


def test_tree_has_kube_apiservers_below_their_listeners(
    report: tuple[ReportedObject, ...],
) -> None:
    lines = tree(report)
    start = lines.index("    listener names 443/TLS: Programmed Unknown, routes unknown")
    two = ["      HostedAPIServer default/two api.two.test",
           "        Service default/two: 0 of 0 endpoints ready"]  # fmt: skip
    assert lines[start + 1 : start + 6] == [*ONE, *two]
    assert lines.count(ONE[0]) == 3
    start = lines.index(PROD[0])
    assert lines[start : start + len(PROD)] == PROD
    start = lines.index("no Gateway")
    assert lines[start + 1 :][: len(LOST)] == LOST
    assert lines[start + len(LOST) + 1] == "  HostedAPIServer default/astray api.astray.test"


def test_kube_apiservers_are_selected_by_name_gateway_and_namespace(
    report: tuple[ReportedObject, ...],
) -> None:
    assert tree(report, "", "prod.example") == [HEADER, *PROD]
    assert tree(report, "", "infra/clusters") == [HEADER, *PROD]
    assert tree(report, "infra") == [HEADER, *PROD, "no Gateway", *LOST]
    one = tree(report, "default", "one")
    assert one.count(ONE[0]) == 3
    assert not any("HostedAPIServer default/two" in line for line in one)
    assert not any("UpstreamCluster prod" in line for line in tree(report, "default"))


def test_table_has_gateway_and_hostname_of_kube_apiservers(
    report: tuple[ReportedObject, ...],
) -> None:
    lines = [line.split() for line in status_lines(report, wide=False)]
    start = lines.index(["KUBE-APISERVER", "PROGRAMMED", "GATEWAY", "HOSTNAME"])
    assert lines[start + 1 :] == [
        ["UpstreamCluster", "prod.example", "Unknown", "infra/clusters", "prod.example"],
        ["UpstreamCluster", "lost.example", "Unknown", "none", "none"],
        ["HostedAPIServer", "default/one", "Unknown", "default/apis", "api.one.test"],
        ["HostedAPIServer", "default/two", "Unknown", "default/apis", "api.two.test"],
        ["!", *["Service", "default/two:", "0", "of", "0", "endpoints", "ready"]],
        ["HostedAPIServer", "default/astray", "Unknown", "default/none", "api.astray.test"],
    ]


def test_listener_of_a_listener_set_has_its_hosted_kube_apiservers() -> None:
    """A parentRef names a Gateway, whose ListenerSets have listeners, too."""
    listener = {"name": "more", "port": 9443, "protocol": "TLS", "tls": {"mode": "Passthrough"}}
    gateway_spec = {"gatewayClassName": "gatehouse-envoy", "listeners": [],
                    "allowedListeners": {"namespaces": {"from": "All"}}}  # fmt: skip
    objects: list[Object] = [
        CLASS, *NAMESPACES,
        {"kind": "Gateway", "metadata": {"name": "apis", "namespace": "default"},
         "spec": gateway_spec},
        {"kind": "ListenerSet", "metadata": {"name": "set", "namespace": "default"},
         "spec": {"parentRef": {"name": "apis"}, "listeners": [listener]}},
        *served(Place("one", 6443, ("10.1.0.1",))),
    ]  # fmt: skip
    report = report_status(ObjectSet(objects, [], ()))
    lines = tree(report)
    start = lines.index(
        "    listener default/set/more 9443/TLS: Programmed Unknown, routes unknown"
    )
    assert lines[start + 1 :] == ONE


def test_malformed_kube_apiserver_has_no_gateway() -> None:
    broken = [
        {"kind": "UpstreamCluster", "metadata": {"name": "a.example"}, "spec": {"servers": 7}},
        {"kind": "HostedAPIServer", "metadata": {"name": "b", "namespace": "default"},
         "spec": {"service": "b", "hosts": ["b.example"]}},
    ]  # fmt: skip
    report = report_status(ObjectSet([CLASS, *NAMESPACES, gateway(), *broken], [], ()))
    assert tree(report)[-3:] == [
        "no Gateway",
        "  UpstreamCluster a.example",
        "  HostedAPIServer default/b b.example",
    ]
