"""Nodes that are drained one after the other, as for an upgrade of their operating system."""

from __future__ import annotations

from collections import Counter

import pytest

from cluster import example, layout, running
from cluster.conftest import NAMESPACE, leader
from cluster.example import DEPLOYMENTS
from cluster.running import wait_until
from cluster.traffic import requests_to
from fakes.audit_log import AuditLog, requested_resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_drained_nodes_lose_no_request_and_budgets_are_kept(urls: tuple[str, ...]) -> None:
    refused = _refused_evictions()
    with requests_to(*urls):
        for node in layout.NODES:
            drain = ("drain", node.name, "--delete-emptydir-data", "--ignore-daemonsets")
            running.run("kubectl", *drain, running.TIMEOUT)
            running.run("kubectl", "uncordon", node.name)
            example.rolled_out("echo", *DEPLOYMENTS)
        rollout = ("rollout", "status", "deployment/gatehouse", running.TIMEOUT)
        running.run("kubectl", "-n", NAMESPACE, *rollout)
        wait_until("one controller leads", leader)
        running.run("kubectl", "-n", "kube-system", "rollout", "status", "deployment/coredns")
        example.change_is_served(urls, "drained")
    # All instances were on the second node: each budget refused the second eviction for a time.
    later = _refused_evictions() - refused
    assert all(later[name] for name in DEPLOYMENTS), later


def _refused_evictions() -> Counter[str]:
    """Return the number of evictions that a budget refused, by Deployment."""
    return Counter(
        event["objectRef"]["name"].rsplit("-", 2)[0]
        for event in AuditLog(layout.AUDIT_LOG).requests()
        if requested_resource(event) == "pods/eviction" and event["responseStatus"]["code"] == 429
    )
