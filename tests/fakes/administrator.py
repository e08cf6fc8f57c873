"""The tools of an administrator: helm and kubectl with the rights of one cluster."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from fakes import kubectls
from fakes.process import environment

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "gatehouse"
CASES = sorted((ROOT / "tests" / "charts" / "cases").glob("*.yaml"))
EXPECTED = ROOT / "tests" / "charts" / "expected"
"""Golden files with what helm renders of each case, in the namespace `SYSTEM`."""
CACHED = ROOT / ".cache" / "helm" / "helm"
HELM = str(CACHED) if CACHED.exists() else shutil.which("helm")
SYSTEM = ("--namespace", "gatehouse-system")


class Cluster:
    """An API server, and an administrator's tools."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._kubeconfig = str(kubeconfig)
        self._home = home

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, "--kubeconfig", self._kubeconfig],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=environment(HOME=str(self._home)),
        )

    def kubectl(self, *words: str, stdin: str = "") -> str:
        done = self.run(kubectls.newest(), *words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def helm(self, *words: str) -> subprocess.CompletedProcess[str]:
        assert HELM is not None
        return self.run(HELM, *words)

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "--output", "json"))

    def installed(self) -> set[str]:
        """Return the names of all objects of the chart in its namespace."""
        kinds = "deployments,services,serviceaccounts,roles,networkpolicies,cronjobs,jobs"
        label = "app.kubernetes.io/managed-by=Helm"
        result = self.get(kinds, *SYSTEM, "--selector", label)["items"]
        return {f"{obj['kind']}/{obj['metadata']['name']}" for obj in result}


OPERATORS = ("cert-manager.io/", "monitoring.coreos.com/")
"""API groups whose kinds the API server has only if their operators are installed."""


def manifests(release: str, *words: str) -> list[dict[str, Any]]:
    """Return the manifests of a release."""
    assert HELM is not None
    done = subprocess.run(
        [HELM, "template", release, str(CHART), "--kube-version", "1.34", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return [document for document in yaml.load_all(done.stdout, yaml.CSafeLoader) if document]


def rendered(release: str, *words: str) -> str:
    """Return the manifests of a release without those for other operators."""
    return _without_operators(manifests(release, *words))


def rendered_case(case: Path) -> str:
    """Return the expected manifests of a case without those for other operators.

    `test_rendered_chart_matches_expected_objects` compares them with those that helm renders.
    """
    text = (EXPECTED / case.name).read_text(encoding="utf-8")
    return _without_operators(yaml.load_all(text, yaml.CSafeLoader))


def _without_operators(documents: Iterable[dict[str, Any]]) -> str:
    return yaml.dump_all(
        (document for document in documents if not document["apiVersion"].startswith(OPERATORS)),
        Dumper=yaml.CSafeDumper,
    )
