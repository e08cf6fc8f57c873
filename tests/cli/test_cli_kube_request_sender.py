"""`gatehouse explain kube-request --send`: requests, and comparison of their answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gatehouse.apis.request_info import RequestInfo
from gatehouse.cli.errors import CLIError
from gatehouse.cli.explain import explain
from gatehouse.cli.kube_request_sender import (
    KubeTarget,
    compare_status,
    dry_run,
    find_kube_entry,
    kube_target,
    with_kube_entry,
)
from gatehouse.cli.logged_request import LoggedRequest


@pytest.mark.parametrize(
    ("request_info", "method", "path"),
    [
        (RequestInfo("list", "", True, resource="pods"), "GET", "/api/v1/pods"),
        (RequestInfo("watch", "", True, resource="pods", namespace="a"), "GET",
         "/api/v1/namespaces/a/pods?watch=1"),
        (RequestInfo("get", "", True, "apps", "", "deployments", "scale", "a", "b/../c"), "GET",
         "/apis/apps/v1/namespaces/a/deployments/b%2F..%2Fc/scale"),
        (RequestInfo("create", "", True, resource="pods", namespace="a"), "POST",
         "/api/v1/namespaces/a/pods?dryRun=All"),
        (RequestInfo("delete", "", True, resource="nodes", name="n"), "DELETE",
         "/api/v1/nodes/n?dryRun=All"),
    ],
)  # fmt: skip
def test_request_of_a_resource_changes_nothing(
    request_info: RequestInfo, method: str, path: str
) -> None:
    assert kube_target(request_info, "v1") == KubeTarget(method, path)


def test_request_of_a_path_changes_nothing() -> None:
    assert dry_run(KubeTarget("PUT", "/a?b=c")) == KubeTarget("PUT", "/a?b=c&dryRun=All")
    assert dry_run(KubeTarget("HEAD", "/a")) == KubeTarget("HEAD", "/a")
    with pytest.raises(CLIError, match="verb impersonate has no HTTP method"):
        kube_target(RequestInfo("impersonate", "", True, resource="users"), "v1")


@pytest.mark.parametrize(
    ("status", "message", "outcome", "agrees"),
    [
        (200, "", "forwarded", True),
        (403, 'pods is forbidden: User "a" cannot list', "forwarded", True),
        (403, "no policy of cluster(a) holds this request", "forwarded", False),
        (403, "no policy of cluster(a) holds this request", "403: no policy matches", True),
        (503, "", "forwarded", False),
        (503, "", "503: no server is allowed", True),
        (200, "", "429: flow control schema no allows no requests", False),
    ],
)
def test_status_is_compared_with_the_outcome(
    status: int, message: str, outcome: str, agrees: bool
) -> None:
    sent = compare_status(status, message, outcome)
    assert (sent.agrees, sent.status) == (agrees, status)
    assert message in sent.text


@pytest.mark.parametrize(
    ("user", "endpoint", "outcome", "agrees"),
    [
        ("alice", "10.0.0.1:6443", "forwarded", True),
        ("system:anonymous", "10.0.0.1:6443", "forwarded", False),
        ("alice", None, "forwarded", False),
        ("alice", None, "429: limit", True),
    ],
)
def test_entry_has_the_user_and_the_server(
    user: str, endpoint: str | None, outcome: str, agrees: bool
) -> None:
    entry = {"user_agent": "x/1", "user": user, "endpoint": endpoint, "flags": None, "details": ""}
    lines = ["x/1", json.dumps(entry | {"user_agent": "x/12"}), json.dumps(entry)]
    assert find_kube_entry(lines[:2], "x/1") is None
    logged = find_kube_entry(lines, "x/1")
    assert logged == LoggedRequest("", endpoint or "", user=user)
    assert logged.text == f"user {user}" + (f", endpoint {endpoint}" if endpoint else "")
    sent = compare_status(429 if outcome.startswith("429") else 200, "", outcome)
    explanation = {"user": {"name": "alice"}, "outcome": outcome}
    assert with_kube_entry(sent, logged, explanation).agrees is agrees


def test_sending_needs_a_cluster(tmp_path: Path) -> None:
    words = ["kube-request", "--cluster", "a", "--path", "/version"]
    for more, message in (
        (["--send", "-f", str(tmp_path)], "--send needs a cluster"),
        (["--credentials", str(tmp_path)], "--credentials needs --send"),
    ):
        result = CliRunner().invoke(explain, [*words, *more])
        assert message in str(result.exception)
