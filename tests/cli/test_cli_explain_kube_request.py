"""`gatehouse explain`: which policy holds a request, and why those before it do not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fakes.inprocess import Server
from gatehouse.apis import resources
from gatehouse.cli.errors import CLIError
from gatehouse.cli.explain import explain
from gatehouse.standalone.state_directory import State

CLUSTER = """
apiVersion: proxy.kubegateway.io/v1alpha1
kind: UpstreamCluster
metadata: {name: a.example}
spec:
  servers: [{endpoint: 'http://10.0.0.1'}, {endpoint: 'http://10.0.0.2', disabled: true}]
  flowControl:
    flowControlSchemas:
    - {name: slow, tokenBucket: {qps: 5, burst: 10}}
    - {name: nothing, maxRequestsInflight: {max: 0}}
  dispatchPolicies:
  - rules: [{verbs: [], apiGroups: [''], resources: [pods]}]
  - rules:
    - {verbs: [list], apiGroups: [''], resources: [pods], users: [bob]}
    - verbs: [get]
      apiGroups: ['']
      resources: [pods/log]
      serviceAccounts: [{name: s, namespace: ns}]
    flowControlSchemaName: slow
    logMode: 'on'
  - rules: [{verbs: [get], nonResourceURLs: [/healthz]}]
    upstreamSubset: ['http://10.0.0.2']
  - rules: [{verbs: [delete], apiGroups: ['*'], resources: ['*']}]
    flowControlSchemaName: nothing
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(explain, ["--cluster", "a.example", *arguments])


def told(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    result = run("-f", str(file), "-o", "json", *arguments)
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer


def test_explain_names_policy_by_its_index(tmp_path: Path) -> None:
    result = told(tmp_path, "--as", "bob", "--verb", "list", "--resource", "pods")
    assert (result["policy"], result["rule"], result["outcome"]) == (1, 0, "forwarded")
    assert result["schema"]["limit"] == {"type": "TokenBucket", "rate": 5, "burst": 10}
    assert (result["servers"], result["logged"]) == (["http://10.0.0.1"], True)
    assert result["user"]["groups"] == ["system:authenticated"]
    assert result["problems"][0].startswith("spec.dispatchPolicies[0].rules[0] is rejected: verbs")


def test_explain_adds_groups_of_service_account(tmp_path: Path) -> None:
    who = "system:serviceaccount:ns:s"
    result = told(
        tmp_path, "--as", who, "--as-group", "g", "--verb", "get", "--resource", "pods/log"
    )
    assert (result["policy"], result["rule"]) == (1, 1)
    assert result["request"]["longRunning"] is True
    assert result["user"]["groups"] == [
        *("g", "system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    ]
    assert result["mismatches"] == [
        {"policy": 1, "rule": 0, "field": "verbs", "value": "get", "wanted": "list"}
    ]


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        (["--path", "/healthz"], "503: no server is allowed"),
        (["--path", "/livez"], "403: no policy matches"),
        (["--path", "/api/v1/pods", "--method", "DELETE"], "403: no policy matches"),
        (
            ["--path", "/apis/apps/v1/namespaces/n/deployments/d", "--method", "DELETE"],
            "429: flow control schema nothing allows no requests",
        ),
        (
            ["--path", "/apis/apps/v1/namespaces/n/deployments/d", "--method", "delete"],
            "429: flow control schema nothing allows no requests",
        ),
        (["--verb", "delete", "--resource", "deployments.apps"], "429: flow control schema"),
    ],
)
def test_explain_reports_outcome_and_reason(
    tmp_path: Path, arguments: list[str], outcome: str
) -> None:
    assert told(tmp_path, *arguments)["outcome"].startswith(outcome)


def test_explain_prints_table_by_default(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    result = run("-f", str(file), "--as", "eve", "--verb", "list", "--resource", "pods")
    assert result.exit_code == 0, result.output
    flat = " ".join(result.output.replace("│", " ").split())
    assert "users and serviceAccounts: 'eve' is not in: bob" in flat
    assert "Outcome: 403: no policy matches" in flat


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--verb", "get"], "exactly one of --resource and --path is required"),
        (
            ["--resource", "pods", "--path", "/x"],
            "exactly one of --resource and --path is required",
        ),
        (["--resource", "pods"], "--verb is required"),
        (["--path", "/x", "--api-group", "apps"], "--api-group must not be set with --path"),
        (["--path", "x"], "must start with /"),
        (["--path", "/api/v1/watch"], "names no resource after watch"),
        (["--path", "/%zz"], "is not percent-encoded as it should be"),
        (["--path", "/x", "-f", "/nonexistent"], "/nonexistent"),
    ],
)
def test_explain_rejects_invalid_arguments(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, CLIError)
    assert words in str(result.exception)


async def test_explain_reads_object_from_api_server(tmp_path: Path) -> None:
    server = Server(State(tmp_path / "s"))
    async with server.running(), server.client() as client:
        await client.create(resources.UPSTREAM_CLUSTERS, yaml.safe_load(CLUSTER))
        words = ["--kubeconfig", str(server.state.kubeconfig), "-o", "json"]
        flags = ["--as", "bob", "--verb", "list", "--resource", "pods"]
        result = await asyncio.to_thread(run, *words, *flags)
        assert json.loads(result.output)["policy"] == 1
        gone = await asyncio.to_thread(
            CliRunner().invoke, explain, ["--cluster", "b.example", *words, *flags]
        )
        assert "UpstreamCluster b.example not found" in str(gone.exception)


def test_explain_reads_several_files_and_directories(tmp_path: Path) -> None:
    (tmp_path / "dir" / "sub").mkdir(parents=True)
    other = tmp_path / "other.yaml"
    other.write_text(CLUSTER.replace("a.example", "b.example"))
    (tmp_path / "dir" / "sub" / "all.yaml").write_text(
        f"kind: X\nmetadata: {{name: x}}\n---{CLUSTER}"
    )
    words = ["-f", str(other), "-f", str(tmp_path / "dir"), "-o", "json", "--path", "/livez"]
    assert json.loads(run(*words).output)["cluster"] == "a.example"
    missing = run("-f", str(other), "-f", str(other), "--path", "/livez")
    assert f"UpstreamCluster a.example not found in {other}, {other}" in str(missing.exception)


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        (("--as", "bob", "--verb", "list"), "slow: 5 requests a second, bursts of 10, at each"),
        (("--verb", "delete"), "nothing: 0 requests at a time at each data plane"),
    ],
)
def test_table_has_the_limit_as_text(
    tmp_path: Path, arguments: tuple[str, ...], limit: str
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    result = run("-f", str(file), "--resource", "pods", *arguments)
    assert result.exit_code == 0, result.exception
    assert limit in " ".join(result.output.split())
