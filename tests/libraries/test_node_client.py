"""A JavaScript program with the client of the Kubernetes project."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.patience import SECONDS
from fakes.process import ApiServer, environment

pytestmark = [pytest.mark.process, pytest.mark.slow]

SOURCE = Path(__file__).with_name("node")


@pytest.fixture(scope="module")
def program(cache: Path) -> Path:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("no Node.js with npm on this machine")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.strip("v").split(".")[0]) < 20:
        pytest.skip(f"Node.js 20 or newer is needed, not {version.strip()}")
    target = cache / "node"
    shutil.copytree(SOURCE, target, dirs_exist_ok=True)
    subprocess.run(
        [npm, "ci", "--no-audit", "--no-fund"], cwd=target, check=True, timeout=3 * SECONDS
    )
    return target / "client.mjs"


@pytest.mark.long
def test_node_client_manages_objects_watches_and_informers(
    apiserver: ApiServer, namespace: str, program: Path, tmp_path: Path
) -> None:
    env = environment(KUBECONFIG=str(apiserver.kubeconfig), HOME=str(tmp_path))
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl on this machine")
    subprocess.run([kubectl, "create", "namespace", namespace], env=env, check=True)
    answer = subprocess.run(
        ["node", str(program), namespace], env=env, capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    facts: dict[str, Any] = {}
    for line in answer.stdout.splitlines():
        fact = json.loads(line)
        facts[fact["what"]] = fact["value"]
    assert facts["created"] == {"a": "1"}
    assert facts["applied"] == {"a": "2", "b": "3"}
    assert facts["route"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
    assert facts["again"] == 409
    kinds = [event[0] for event in facts["watched"]]
    assert kinds == ["MODIFIED", "MODIFIED", "DELETED"]
    assert [event[0] for event in facts["informed"]] == ["add", "update", "update", "delete"]
