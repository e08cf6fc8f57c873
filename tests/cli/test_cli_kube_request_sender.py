"""`gatehouse explain kube-request --send`: requests, and comparison of their answers."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fakes.inprocess import Server
from fakes.kube_apiserver import KubeApiserver
from gatehouse.apis.resources import CONFIG_MAPS
from gatehouse.cli import explain_kube_request
from gatehouse.cli.errors import CLIError
from gatehouse.cli.explain import explain
from gatehouse.cli.kube_request_sender import (
    KubeTarget,
    ServingGateway,
    compare_status,
    dry_run,
    exchange_kube_request,
    find_kube_entry,
    kube_target,
    with_kube_entry,
)
from gatehouse.cli.logged_request import LoggedRequest
from gatehouse.inspection.object_set import ObjectSet
from gatehouse.kube import client as kube
from gatehouse.kube.config import from_kubeconfig
from gatehouse.standalone.state_directory import State
from kube_base.types.request_info import RequestInfo

POD = "/api/v1/namespaces/a/pods/p"


@pytest.mark.parametrize(
    ("request_info", "method", "path"),
    [
        (RequestInfo("list", "", True, resource="pods"), "GET", "/api/v1/pods"),
        (RequestInfo("watch", "", True, resource="pods", namespace="a"), "GET",
         "/api/v1/namespaces/a/pods?watch=1"),
        (RequestInfo("get", "", True, "apps", "", "deployments", "scale", "a", "b/c"), "GET",
         "/apis/apps/v1/namespaces/a/deployments/b%2Fc/scale"),
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
    for path in (f"{POD}?b=c", f"{POD}/status?b=c", f"{POD}/eviction?b=%23"):
        assert dry_run(KubeTarget("PUT", path)) == KubeTarget("PUT", f"{path}&dryRun=All")
    for path in ("/", "/healthz/", f"{POD}/log", f"{POD}/proxy/a?b=c", "/api/v1/nodes/n/proxy/"):
        assert dry_run(KubeTarget("HEAD", path)) == KubeTarget("HEAD", path)
    with pytest.raises(CLIError, match="verb impersonate has no HTTP method"):
        kube_target(RequestInfo("impersonate", "", True, resource="users"), "v1")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{POD}/exec?command=ls"), ("GET", f"{POD}/ex%65c"),
        ("GET", f"{POD}/attach"), ("GET", f"{POD}/portforward"),
        *((method, f"{POD}/proxy/a") for method in ("POST", "PUT", "PATCH", "DELETE", "delete")),
        *(("POST", f"{POD}/{name}") for name in ("exec", "attach", "portforward", "other")),
        ("POST", "/api/v1/nodes/n/proxy/run/a/b/c"),
        ("PUT", "/api/v1/namespaces/a/services/https:s:443/proxy"),
        ("DELETE", "/api/v1/proxy/namespaces/a/services/s"),
        ("PUT", "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachines/v/start"),
        ("PUT", "/debug/flags/v"),
        ("DELETE", "/"),
    ],
)  # fmt: skip
def test_request_that_cannot_be_a_dry_run_is_not_sent(method: str, path: str) -> None:
    with pytest.raises(CLIError, match=f"--send: {method} of .* cannot be a dry run"):
        dry_run(KubeTarget(method, path))


def test_error_names_the_subresource() -> None:
    info = RequestInfo("create", "", True, "", "", "pods", "exec", "a", "p")
    with pytest.raises(CLIError, match=r"--send: POST of subresource pods/exec cannot be"):
        kube_target(info, "v1")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        # A client does not send what follows.
        (f"{POD}#a", "must be percent-encoded"),
        (f"{POD}/status\n", "must be percent-encoded"),
        (f"{POD}/é", "must be percent-encoded"),
        ("/api/v1/proxy", "not a valid kube-apiserver request"),
        # Proxies and servers clean paths in different ways.
        (f"{POD}/status/../exec", "must not have empty segments"),
        (f"{POD}/status/%2E%2e/exec", "must not have empty segments"),
        (f"{POD}/.", "must not have empty segments"),
        (f"{POD}//exec", "must not have empty segments"),
    ],
)
def test_path_that_is_ambiguous_is_not_sent(path: str, message: str) -> None:
    with pytest.raises(CLIError, match=re.escape(message)):
        dry_run(KubeTarget("DELETE", path))


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[tuple[Path, str]]:
    state = State(tmp_path / "state")
    server = Server(state)
    async with server.running():
        yield state.kubeconfig, f"https://127.0.0.1:{server.port}"


@pytest.fixture
def kubernetes(kube_apiserver: KubeApiserver) -> tuple[Path, str]:
    return kube_apiserver.kubeconfig, kube_apiserver.url


KUBERNETES = (pytest.mark.peers, pytest.mark.kubernetes)


@pytest.fixture(params=["embedded", pytest.param("kubernetes", marks=KUBERNETES)])
def server(request: pytest.FixtureRequest) -> tuple[Path, str]:
    """The kubeconfig and the URL of a server."""
    result: tuple[Path, str] = request.getfixturevalue(request.param)
    return result


async def test_sent_delete_keeps_the_object(server: tuple[Path, str]) -> None:
    """A kube-apiserver reads the options of a DELETE from its body, if there is one."""
    kubeconfig, url = server
    place = ServingGateway("default/api", "localhost", "127.0.0.1", int(url.rpartition(":")[2]))
    user = from_kubeconfig(kubeconfig)
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        metadata = {"generateName": "sent-", "namespace": "default"}
        created = await client.create(CONFIG_MAPS, {"metadata": metadata})
        name = created["metadata"]["name"]
        collection = "/api/v1/namespaces/default/configmaps"
        for path in (f"{collection}/{name}", collection):
            target = dry_run(KubeTarget("DELETE", path))
            sent = await exchange_kube_request(place, target, "x/1", user, "forwarded")
            assert sent.status == 200, sent.text
        assert await client.get(CONFIG_MAPS, name, "default") == created


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


def test_sending_reads_the_cluster_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = {"servers": [{"endpoint": "http://10.0.0.1"}], "dispatchPolicies": []}
    cluster = {"kind": "UpstreamCluster", "metadata": {"name": "a"}, "spec": spec}
    reads: list[Path] = []

    def read(path: Path) -> ObjectSet:
        reads.append(path)
        return ObjectSet([cluster], [], ("no permission to list gateways",))

    monkeypatch.setattr(explain_kube_request, "read_cluster", read)
    kubeconfig = tmp_path / "none"
    for name, message in (
        ("a", "no Gateway with an address serves UpstreamCluster a"),
        ("b", "UpstreamCluster b not found; no permission to list gateways"),
    ):
        words = ["kube-request", "--cluster", name, "--path", "/version", "--send"]
        result = CliRunner().invoke(explain, [*words, "--kubeconfig", str(kubeconfig)])
        assert str(result.exception) == message
    assert reads == [kubeconfig] * 2


def test_sending_needs_a_cluster(tmp_path: Path) -> None:
    words = ["kube-request", "--cluster", "a", "--path", "/version"]
    for more, message in (
        (["--send", "-f", str(tmp_path)], "--send needs a cluster"),
        (["--credentials", str(tmp_path)], "--credentials needs --send"),
    ):
        result = CliRunner().invoke(explain, [*words, *more])
        assert message in str(result.exception)
