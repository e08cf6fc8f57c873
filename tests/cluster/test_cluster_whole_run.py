"""The end of a run: what the audit log has of all tests, and what an uninstallation leaves."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest

from cluster import layout, running
from cluster.conftest import NAMESPACE, helm
from cluster.running import wait_until
from fakes.audit_log import AuditLog, requested_resource
from fakes.every_permission import KINDS, STEPS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CONTROLLER = f"{NAMESPACE}:gatehouse"
CERTIFICATES = f"{CONTROLLER}-certificates"
ROLES = {
    CONTROLLER: ("clusterrole/gatehouse-controller", "role/gatehouse"),
    CERTIFICATES: ("role/gatehouse-certificates",),
}
"""Roles of each ServiceAccount of the chart."""

REST_SECONDS = 20
NAMESPACED_KINDS = (
    "deployments,daemonsets,services,configmaps,secrets,serviceaccounts,roles,rolebindings,jobs,cronjobs,"
    "networkpolicies,poddisruptionbudgets,horizontalpodautoscalers"
)
CLUSTER_KINDS = "clusterroles,clusterrolebindings,validatingadmissionpolicies"
AUDIT = AuditLog(layout.AUDIT_LOG)


@pytest.fixture(scope="module")
def all_kinds(urls: tuple[str, ...]) -> None:
    """Have an object of each kind that the controller reads, and change what it writes for them."""
    running.apply(KINDS.read_text())
    wait_until("statuses of all kinds are written", _statuses_are_written)
    wait_until("objects are created", _has_requested, "create horizontalpodautoscalers")
    credentials = {"stringData": {".dockerconfigjson": '{"auths": {}}'}}
    _patch(NAMESPACE, "secret/registry", credentials)
    for name, spec, request in STEPS:
        _patch("kinds", name, {"spec": spec})
        wait_until(f"the controller sends: {request}", _has_requested, request)


def _patch(namespace: str, name: str, value: dict[str, Any]) -> None:
    running.run("kubectl", "-n", namespace, "patch", name, "--type=merge", "-p", json.dumps(value))


def _statuses_are_written() -> bool:
    return not any("/status " in name for name in _unused(CONTROLLER))


def _has_requested(request: str) -> bool:
    """Return whether the controller has sent a request such as ``create services``."""
    return any(
        f"{event['verb']} {requested_resource(event)}" == request
        for event in AUDIT.requests(CONTROLLER)
        if event.get("objectRef", {}).get("namespace") == "kinds"
    )


def test_no_request_of_gatehouse_is_forbidden(all_kinds: None) -> None:
    assert any(event["responseStatus"]["code"] == 200 for event in AUDIT.requests(NAMESPACE))
    assert _forbidden() == set()


def _forbidden() -> set[str]:
    """Return verb and kind of the requests that were forbidden.

    Requests to create objects in a namespace that is being deleted are not: no permission helps.
    """
    return {
        f"{event['verb']} {requested_resource(event)}"
        for event in AUDIT.requests(NAMESPACE)
        if event["responseStatus"]["code"] == 403
        and "because it is being terminated" not in event["responseStatus"]["message"]
    }


@pytest.mark.parametrize("account", ROLES)
def test_no_permission_is_unused(all_kinds: None, account: str) -> None:
    assert _unused(account) == []


def _unused(account: str) -> list[str]:
    """Return permissions that a ServiceAccount has not used, though a run must."""
    roles = [running.kubectl_json("-n", NAMESPACE, "get", role) for role in ROLES[account]]
    return AUDIT.unused(account, roles)


def test_controllers_at_rest_request_little_but_their_lease(all_kinds: None) -> None:
    # A controller that has just started looks for missing kinds and reviews tokens more often.
    wait_until("a time with at most two other requests", _is_at_rest)


def _is_at_rest() -> bool:
    requests = _requests_during(REST_SECONDS)
    lease = requests.pop("update leases", 0) + requests.pop("get leases", 0)
    # The leader renews and the other replica reads, each every 2 s.
    assert lease <= REST_SECONDS + 2
    return requests.total() <= 2


def _requests_during(seconds: float) -> Counter[str]:
    """Return what controllers request in the next seconds, by verb and kind."""
    before = _requests()
    time.sleep(seconds)
    return _requests() - before


def _requests() -> Counter[str]:
    return Counter(f"{e['verb']} {requested_resource(e)}" for e in AUDIT.requests(CONTROLLER))


def test_uninstalled_chart_leaves_only_documented_objects(all_kinds: None) -> None:
    running.run("kubectl", "delete", "gateways", "--all", "-A", running.TIMEOUT)
    managed = "app.kubernetes.io/managed-by"
    wait_until("data planes are deleted", lambda: not _labelled(f"{managed}=gatehouse"))
    helm("uninstall", "gatehouse")
    assert _labelled(f"{managed} in (Helm, gatehouse)") == []
    assert _names("secrets") == {"gatehouse-channel", "gatehouse-channel-ca", "registry"}
    assert _names("leases") == {"gatehouse"}
    assert {"gatehouse-nginx", "gatehouse-envoy"} <= _names("gatewayclasses")
    # Helm deletes the permissions while the controllers still end, and the leader gives its Lease
    # back and says so in an Event.
    assert _forbidden() <= {"create events", "get leases", "update leases"}


def _names(kind: str) -> set[str]:
    items = running.kubectl_json("-n", NAMESPACE, "get", kind)["items"]
    return {item["metadata"]["name"] for item in items}


def _labelled(selector: str) -> list[tuple[str, str]]:
    """Return kind and name of all objects with these labels."""
    items = running.kubectl_json("get", NAMESPACED_KINDS, "-A", "-l", selector)["items"]
    items += running.kubectl_json("get", CLUSTER_KINDS, "-l", selector)["items"]
    return [(item["kind"], item["metadata"]["name"]) for item in items]
