"""Operations on objects by the real kubectl, checked by its output."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from fakes.kubectls import MAP, Kubectl, table
from fakes.patience import KUBECTL_TIMEOUT, SECONDS, wait_until

pytestmark = pytest.mark.process

ROUTE: dict[str, Any] = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "HTTPRoute",
    "metadata": {"name": "tea"},
    "spec": {"hostnames": ["a.example"], "rules": [{"backendRefs": [{"name": "s", "port": 80}]}]},
}


def test_objects_are_created_read_and_deleted(kubectl: Kubectl) -> None:
    assert "configmap/settings created" in kubectl("create", "-f", "-", stdin=MAP)
    assert table(kubectl("get", "cm", "settings"))[0] == ["NAME", "DATA", "AGE"]
    assert table(kubectl("get", "cm", "settings"))[1][:2] == ["settings", "1"]
    assert kubectl("get", "cm", "-o", "name").splitlines() == ["configmap/settings"]
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.colour}") == "red"
    assert "colour: red" in kubectl("get", "cm", "settings", "-o", "yaml")
    columns = "-o=custom-columns=N:.metadata.name,C:.data.colour"
    assert table(kubectl("get", "cm", "settings", columns)) == [["N", "C"], ["settings", "red"]]
    assert "already exists" in kubectl.fails("create", "-f", "-", stdin=MAP)
    assert 'configmap "settings" deleted' in kubectl("delete", "cm", "settings")
    assert 'configmaps "settings" not found' in kubectl.fails("get", "cm", "settings")


def test_list_uses_selectors_and_pages(kubectl: Kubectl) -> None:
    for number in range(5):
        config_map = {**MAP, "metadata": {"name": f"m{number}", "labels": {"n": str(number)}}}
        kubectl("create", "-f", "-", stdin=config_map)
    assert len(table(kubectl("get", "cm", "--chunk-size=2"))) == 6
    assert [row[0] for row in table(kubectl("get", "cm", "-l", "n in (1,3)"))[1:]] == ["m1", "m3"]
    assert table(kubectl("get", "cm", "--field-selector=metadata.name=m2"))[1][0] == "m2"
    assert "n=4" in kubectl("get", "cm", "m4", "--show-labels")
    assert "No resources found" in kubectl("get", "cm", "-l", "n=9")
    assert "not a known field selector" in kubectl.fails("get", "cm", "--field-selector=data.x=1")


def test_quantity_can_be_a_number(kubectl: Kubectl) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "containers": [
                {"name": "c", "image": "i:1", "resources": {"limits": {"cpu": 0.5, "a.b/c": 2}}}
            ]
        },
    }
    assert "p created" in kubectl("apply", "-f", "-", stdin=pod)
    document = kubectl.json("get", "pod", "p")
    (container,) = document["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "500m", "a.b/c": "2"}
    # kubectl compares what was written with what is answered; the server finds nothing to change.
    assert "p configured" in kubectl("apply", "-f", "-", stdin=pod)
    assert kubectl.json("get", "pod", "p")["spec"] == document["spec"]


def test_client_side_apply_creates_and_updates(kubectl: Kubectl) -> None:
    assert "settings created" in kubectl("apply", "-f", "-", stdin=MAP)
    assert "settings unchanged" in kubectl("apply", "-f", "-", stdin=MAP)
    changed = {**MAP, "data": {"shape": "round"}}
    assert "settings configured" in kubectl("apply", "-f", "-", stdin=changed)
    assert kubectl.json("get", "cm", "settings")["data"] == {"shape": "round"}
    assert "tea created" in kubectl("apply", "-f", "-", stdin=ROUTE)
    rule = kubectl.json("get", "httproute", "tea")["spec"]["rules"][0]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]


def test_server_side_apply_reports_conflicts(kubectl: Kubectl) -> None:
    apply = ["apply", "--server-side", "-f", "-"]
    assert "serverside-applied" in kubectl(*apply, "--field-manager=one", stdin=MAP)
    other = {**MAP, "data": {"colour": "blue"}}
    refusal = kubectl.fails(*apply, "--field-manager=two", stdin=other)
    assert 'conflict with "one"' in refusal
    assert ".data.colour" in refusal
    kubectl(*apply, "--field-manager=two", "--force-conflicts", stdin=other)
    assert kubectl.json("get", "cm", "settings")["data"] == {"colour": "blue"}
    less = {key: value for key, value in other.items() if key != "data"}
    kubectl(*apply, "--field-manager=two", stdin=less)
    assert "data" not in kubectl.json("get", "cm", "settings")
    assert kubectl.json("get", "cm", "settings")["metadata"]["labels"] == {"app": "cafe"}


def test_diff_shows_pending_changes(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MAP)
    assert kubectl("diff", "-f", "-", stdin=MAP) == ""
    difference = kubectl.fails("diff", "-f", "-", stdin={**MAP, "data": {"colour": "blue"}})
    assert "-  colour: red" in difference
    assert "+  colour: blue" in difference
    assert kubectl.json("get", "cm", "settings")["data"] == {"colour": "red"}


def test_edit_updates_object(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "-f", "-", stdin=MAP)
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/red/green/ "$1"\n')
    editor.chmod(0o755)
    assert "settings edited" in kubectl("edit", "cm", "settings", EDITOR=str(editor))
    assert kubectl.json("get", "cm", "settings")["data"] == {"colour": "green"}


def test_all_patch_types_are_applied(kubectl: Kubectl) -> None:
    kubectl("create", "service", "clusterip", "s", "--tcp=80:8080")
    ports = '{"spec":{"ports":[{"port":81,"name":"more"}]}}'
    named = '[{"op":"add","path":"/spec/ports/0/name","value":"web"}]'
    kubectl("patch", "svc", "s", "--type=json", "-p", named)
    assert "patched" in kubectl("patch", "svc", "s", "-p", ports)
    result = kubectl.json("get", "svc", "s")["spec"]["ports"]
    assert sorted(port["port"] for port in result) == [80, 81]
    merged = '{"metadata":{"annotations":{"a":"b"}}}'
    assert "patched" in kubectl("patch", "svc", "s", "--type=merge", "-p", merged)
    assert "no change" in kubectl("patch", "svc", "s", "--type=merge", "-p", merged)
    refusal = kubectl.fails("patch", "svc", "s", "-p", '{"spec":{"ports":[{"port":0}]}}')
    assert "spec.ports[" in refusal


def test_labels_and_annotations_are_set_and_object_is_replaced(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=MAP)
    assert "labeled" in kubectl("label", "cm", "settings", "tier=front")
    assert "annotated" in kubectl("annotate", "cm", "settings", "note=a b")
    assert "tier=front" in kubectl("get", "cm", "settings", "--show-labels")
    current = kubectl.json("get", "cm", "settings")
    current["data"] = {"n": "1"}
    assert "replaced" in kubectl("replace", "-f", "-", stdin=current)
    assert "object has been modified" in kubectl.fails("replace", "-f", "-", stdin=current)


def test_dry_run_validates_and_stores_nothing(kubectl: Kubectl) -> None:
    out = kubectl("create", "-f", "-", "--dry-run=server", stdin=MAP)
    assert "settings created (server dry run)" in out
    assert "not found" in kubectl.fails("get", "cm", "settings")
    wrong = json.loads(json.dumps(ROUTE))
    wrong["spec"]["rules"][0]["matches"] = [{"path": {"value": "no-slash"}}]
    refusal = kubectl.fails("create", "-f", "-", "--dry-run=server", stdin=wrong)
    assert "spec.rules[0].matches[0].path" in refusal
    assert "value must be an absolute path and start with '/'" in refusal


def test_unknown_fields_are_named(kubectl: Kubectl) -> None:
    if kubectl.minor < 25:
        pytest.skip("validates by itself")
    wrong = {**ROUTE, "spec": {"rulez": []}}
    assert 'unknown field "spec.rulez"' in kubectl.fails("create", "-f", "-", stdin=wrong)
    warned = kubectl("create", "-f", "-", "--validate=warn", stdin=wrong)
    assert 'unknown field "spec.rulez"' in warned
    assert "httproute.gateway.networking.k8s.io/tea created" in warned


def open_watches(kubectl: Kubectl) -> int:
    """Return the number of open watches of all clients of the API server."""
    page = kubectl("get", "--raw", "/metrics")
    numbers = re.findall(r'^apiserver_longrunning_requests{verb="WATCH"} (\S+)$', page, re.M)
    return int(sum(map(float, numbers)))


def test_finalizer_delays_deletion(kubectl: Kubectl) -> None:
    held = {**MAP, "metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    kubectl("create", "-f", "-", stdin=held)
    kubectl("delete", "cm", "held", "--wait=false")
    assert kubectl.json("get", "cm", "held")["metadata"]["deletionTimestamp"]
    before = open_watches(kubectl)
    deleting = kubectl.start("wait", "--for=delete", "cm/held", KUBECTL_TIMEOUT)
    wait_until(lambda: open_watches(kubectl) > before)
    kubectl("patch", "cm", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    out, _ = deleting.communicate(timeout=SECONDS)
    assert deleting.returncode == 0, out
    assert "not found" in kubectl.fails("get", "cm", "held")


def test_get_watch_follows_changes(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=MAP)
    watching = kubectl.start(
        "get", "cm", "settings", "--watch", "-o", "jsonpath={.data.colour}{'\\n'}"
    )
    assert watching.stdout is not None
    assert watching.stdout.readline() == "red\n"
    kubectl("patch", "cm", "settings", "--type=merge", "-p", '{"data":{"colour":"blue"}}')
    assert watching.stdout.readline() == "blue\n"
    watching.kill()
    watching.communicate()


def test_wait_returns_on_conditions_and_json_paths(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=ROUTE)
    if kubectl.minor < 24:
        pytest.skip("has no --for=jsonpath and no --subresource")
    before = open_watches(kubectl)
    waiting = kubectl.start("wait", "--for=jsonpath={.metadata.labels.a}=b", "httproute/tea")
    wait_until(lambda: open_watches(kubectl) > before)
    kubectl("label", "httproute", "tea", "a=b")
    assert "condition met" in waiting.communicate(timeout=SECONDS)[0]
    parent = {
        "parentRef": {"name": "g"},
        "controllerName": "example.com/c",
        "conditions": [
            {
                "type": "Accepted",
                "status": "True",
                "reason": "Accepted",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    status = json.dumps({"status": {"parents": [parent]}})
    kubectl("patch", "httproute", "tea", "--subresource=status", "--type=merge", "-p", status)
    path = "jsonpath={.status.parents[0].conditions[0].status}=True"
    assert "condition met" in kubectl("wait", f"--for={path}", "httproute/tea")


def test_describe_shows_events(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=ROUTE)
    uid = kubectl.json("get", "httproute", "tea")["metadata"]["uid"]
    about = {
        "kind": "HTTPRoute",
        "apiVersion": ROUTE["apiVersion"],
        "name": "tea",
        "namespace": kubectl.namespace,
        "uid": uid,
    }
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"tea.{os.urandom(3).hex()}"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "Spilled",
        "message": "the tea was spilled",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    kubectl("create", "-f", "-", stdin=event)
    description = kubectl("describe", "httproute", "tea")
    assert "Hostnames:" in description
    assert "the tea was spilled" in description
    assert "Spilled" in kubectl("get", "events")
    newer = kubectl.json("get", "events.events.k8s.io")["items"][0]
    assert (newer["note"], newer["regarding"]["name"]) == ("the tea was spilled", "tea")
