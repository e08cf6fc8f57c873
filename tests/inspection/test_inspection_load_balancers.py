"""Report about load balancers outside the cluster: hosts, what differs, upstreams."""

from __future__ import annotations

from typing import Any

from gatehouse.inspection.load_balancer_report import (
    FailingUpstream,
    ReportedUpstream,
    report_load_balancer,
    report_load_balancers,
)
from gatehouse.inspection.object_set import ObjectSet
from gatehouse.inspection.status_report import report_status


def balancer(name: str, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "edge"}
    return {"kind": "ExternalLoadBalancer", "metadata": metadata, "spec": {}, "status": status}


def test_host_is_behind_with_another_version_and_differs_with_an_error() -> None:
    failing = [{"upstream": "shop", "error": "404 UpstreamNotFound"}]
    report = report_load_balancer("edge/front", {
        "version": "7",
        "hosts": [
            {"url": "https://a/api", "version": "7", "server": "nginx/1.29", "apiVersion": 9},
            {"name": "lb-2", "version": "6"},
            {"name": "lb-3", "version": "7", "error": "no route to host"},
            {"name": "lb-4", "version": "7", "failing": failing},
        ],
    })  # fmt: skip
    assert [(host.name, host.synced) for host in report.hosts] == [
        ("https://a/api", "True"), ("lb-2", "Pending"), ("lb-3", "False"), ("lb-4", "False"),
    ]  # fmt: skip
    assert (report.hosts[0].server, report.hosts[0].api_version) == ("nginx/1.29", "9")
    assert report.hosts[3].failing == (FailingUpstream("shop", "404 UpstreamNotFound"),)
    assert [host.message for host in report.hosts[2:]] == [
        "no route to host", "shop: 404 UpstreamNotFound",
    ]  # fmt: skip
    assert report.message == ""


def test_balancer_without_hosts_has_the_reason() -> None:
    accepted = {"type": "Accepted", "status": "False", "message": "spec.hosts: no host has a url"}
    refused = report_load_balancer("edge/front", {"conditions": [accepted]})
    assert refused.message == "spec.hosts: no host has a url"
    assert report_load_balancer("edge/front", {}).message == "no status yet"


def test_balancers_are_sorted_and_have_their_upstreams() -> None:
    upstream = {"context": "http", "name": "shop", "service": "edge/app"}
    objects = ObjectSet([balancer("z"), balancer("a", upstreams=[upstream])], [], ())
    first, second = report_load_balancers(objects)
    assert (first.name, second.name) == ("edge/a", "edge/z")
    assert first.upstreams == (ReportedUpstream("http", "shop", "edge/app"),)


def test_status_report_has_the_problems_of_load_balancers() -> None:
    failed = {
        "type": "Programmed", "status": "False", "reason": "HostSyncFailed", "message": "1 of 2",
    }  # fmt: skip
    (reported,) = report_status(ObjectSet([balancer("front", conditions=[failed])], [], ()))
    assert (reported.kind, reported.full_name) == ("ExternalLoadBalancer", "edge/front")
    assert (reported.group, reported.state) == ("gatehouse.dev", {"Programmed": "False"})
    assert reported.details[0].remedy == "Check the hosts that the message names."
