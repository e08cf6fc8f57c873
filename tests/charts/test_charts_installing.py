"""The chart and an API server: everything is taken, installed, upgraded and removed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fakes import kubectls
from fakes.administrator import CASES, CHART, HELM, ROOT, SYSTEM, Cluster, rendered, rendered_case
from fakes.process import ApiServer

pytestmark = [
    pytest.mark.skipif(HELM is None, reason="no helm: make helm"),
    pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl"),
]

ODD_NAMES = ("1", "true", "a.b", "x" * 53)
"""Releases that helm takes: no text for YAML, no label, nor the beginning of one."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("administrator")
    server = ApiServer(home / "state")
    server.start()
    try:
        kind_cluster = Cluster(server.kubeconfig, home)
        for name in ("elsewhere", "12345"):
            kind_cluster.kubectl("create", "namespace", name)
        yield kind_cluster
    finally:
        server.kill()


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_api_server_accepts_rendered_chart(cluster: Cluster, case: Path) -> None:
    text = rendered_case(case)
    output = cluster.kubectl("apply", "--dry-run=server", "--filename", "-", stdin=text)
    assert len(output.splitlines()) == sum(1 for _ in yaml.load_all(text, yaml.CSafeLoader))


def test_api_server_accepts_crds_and_plain_manifests(cluster: Cluster) -> None:
    apply = ("apply", "--server-side", "--dry-run=server", "--force-conflicts", "--filename")
    cluster.kubectl(*apply, str(CHART / "crds"))
    cluster.kubectl(*apply, str(ROOT / "deploy" / "gatehouse.yaml"))


@pytest.mark.parametrize("release", ODD_NAMES)
@pytest.mark.parametrize("namespace", ["elsewhere", "12345"])
def test_api_server_accepts_long_and_unusual_names(
    cluster: Cluster, release: str, namespace: str
) -> None:
    more = "rateLimit.enabled=true,rateLimit.redis.secretName=limits,machines.enabled=true"
    text = rendered(release, "--namespace", namespace, "--set", more)
    cluster.kubectl("apply", "--dry-run=server", "--filename", "-", stdin=text)
    for obj in yaml.load_all(text, yaml.CSafeLoader):
        # The name of a CronJob has 52 characters at most, that of a Job is a label as well.
        most = 52 if obj["kind"] == "CronJob" else 63
        assert len(obj["metadata"]["name"]) <= most, obj["metadata"]["name"]


def test_api_server_rejects_invalid_pod_fields_of_values(cluster: Cluster) -> None:
    # Parts of Pods are handed on as they are.
    text = rendered("gatehouse", *SYSTEM, "--set", "controller.resources.limits.cpu=much")
    done = cluster.run(
        kubectls.newest(), "apply", "--dry-run=server", "--filename", "-", stdin=text
    )
    assert done.returncode != 0
    assert "spec.template.spec.containers[0].resources.limits" in done.stderr


def test_chart_is_installed_once_upgraded_and_removed(cluster: Cluster) -> None:
    def helm(*words: str) -> str:
        done = cluster.helm(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    output = helm("install", "gatehouse", str(CHART), *SYSTEM, "--skip-crds")
    assert "kubectl -n gatehouse-system rollout status deployment/gatehouse" in output
    first = cluster.installed()
    assert {"Deployment/gatehouse", "NetworkPolicy/gatehouse"} <= first
    assert "Job/gatehouse-certificates-1" in first

    another = cluster.helm(
        *("install", "another", str(CHART), "--skip-crds", "--namespace", "elsewhere")
    )
    assert another.returncode != 0
    assert 'ClusterRole "gatehouse-controller"' in another.stderr

    more = "rateLimit.enabled=true,rateLimit.redis.secretName=limits"
    helm("upgrade", "gatehouse", str(CHART), *SYSTEM, "--set", more)
    second = cluster.installed()
    assert {"Deployment/gatehouse-ratelimit", "Job/gatehouse-certificates-2"} <= second
    assert "Job/gatehouse-certificates-1" not in second
    helm("upgrade", "gatehouse", str(CHART), *SYSTEM, "--set", "rateLimit.enabled=false")
    assert "Deployment/gatehouse-ratelimit" not in cluster.installed()

    helm("uninstall", "gatehouse", *SYSTEM)
    assert cluster.installed() == set()
    label = "app.kubernetes.io/name=gatehouse"
    assert cluster.get("clusterroles", "--selector", label)["items"] == []
