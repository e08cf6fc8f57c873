"""A real kube-apiserver accepts the chart, the plain manifests and the examples."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fakes import kubectls
from fakes.administrator import CASES, CHART, HELM, ROOT, SYSTEM, Cluster, rendered_case
from fakes.kube_apiserver import KubeApiserver
from fakes.patience import KUBECTL_TIMEOUT
from fakes.peer_differences import LOOPBACK_ENDPOINTS

BUNDLED = ROOT / "src" / "gatehouse" / "apiserver_extension" / "bundled"
EXAMPLES = ROOT / "examples"

NOT_MANIFESTS = {"agent-outside.yaml": "the configuration file of an agent"}
ONE_MACHINE = LOOPBACK_ENDPOINTS.values

NAMES = sorted(example.name for example in EXAMPLES.iterdir())
needs_helm = pytest.mark.skipif(HELM is None, reason="no helm: make helm")

NAMES = sorted({path.relative_to(EXAMPLES).parts[0] for path in EXAMPLES.rglob("*.yaml")})


@pytest.fixture(scope="module")
def cluster(kube_apiserver: KubeApiserver, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    result = Cluster(kube_apiserver.kubeconfig, tmp_path_factory.mktemp("administrator"))
    result.kubectl("create", "namespace", SYSTEM[1])
    return result


@pytest.fixture(scope="module")
def cluster_with_crds(cluster: Cluster) -> Cluster:
    """The cluster with the CRDs of Gatehouse and of the Gateway API."""
    cluster.kubectl("apply", "--server-side", "--filename", str(BUNDLED))
    cluster.kubectl("wait", "--for=condition=Established", KUBECTL_TIMEOUT, "crd", "--all")
    # A controller that does not run here creates it in a cluster. Pods need it.
    cluster.kubectl("create", "serviceaccount", "default", "--namespace", "default")
    return cluster


def test_crds_of_the_chart_are_accepted(cluster: Cluster) -> None:
    applied = cluster.kubectl("apply", "--server-side", "--filename", str(CHART / "crds"))
    assert len(applied.splitlines()) == len(list((CHART / "crds").iterdir()))


@pytest.mark.parametrize("path", sorted(BUNDLED.iterdir()), ids=lambda path: str(path.stem))
def test_bundled_crd_is_accepted(cluster: Cluster, path: Path) -> None:
    cluster.kubectl("apply", "--server-side", "--filename", str(path))


@pytest.mark.parametrize("case", CASES, ids=lambda path: str(path.stem))
def test_rendered_chart_is_accepted(cluster: Cluster, case: Path) -> None:
    text = rendered_case(case)
    applied = cluster.kubectl("apply", "--dry-run=server", "--filename", "-", stdin=text)
    assert len(applied.splitlines()) == sum(1 for _ in yaml.load_all(text, yaml.CSafeLoader))


@needs_helm
def test_helm_installs_and_removes_the_chart(cluster: Cluster) -> None:
    done = cluster.helm("install", "gatehouse", str(CHART), *SYSTEM)
    assert done.returncode == 0, done.stderr
    assert "Deployment/gatehouse" in cluster.installed()
    done = cluster.helm("uninstall", "gatehouse", *SYSTEM)
    assert done.returncode == 0, done.stderr
    assert cluster.installed() == set()


def test_plain_manifests_are_accepted(cluster: Cluster) -> None:
    plain = ROOT / "deploy" / "gatehouse.yaml"
    cluster.kubectl("apply", "--server-side", "--dry-run=server", "--filename", str(plain))


@pytest.mark.parametrize("name", [example for example in NAMES if example not in NOT_MANIFESTS])
def test_example_is_accepted(cluster_with_crds: Cluster, name: str) -> None:
    path = EXAMPLES / name
    done = cluster_with_crds.run(kubectls.newest(), "apply", "--filename", str(path))
    errors = [line for line in done.stderr.splitlines() if not line.startswith("Warning: ")]
    if name not in ONE_MACHINE:
        assert (done.returncode, errors) == (0, [])
        return
    # Nothing but the endpoints keeps it from a cluster.
    rejected = [error for error in errors if "may not be in the loopback range" in error]
    assert rejected == errors
    assert len(rejected) == kinds(path).count("EndpointSlice") > 0


@pytest.mark.parametrize("name", NOT_MANIFESTS)
def test_file_that_is_no_manifest_has_no_kind(name: str) -> None:
    assert set(kinds(EXAMPLES / name)) == {None}


def test_exceptions_name_examples() -> None:
    assert {*NOT_MANIFESTS, *ONE_MACHINE} <= set(NAMES)


def kinds(path: Path) -> list[str | None]:
    """Return the kind of each object of an example, None for what is no object."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    return [
        document.get("kind")
        for file in files
        for document in yaml.load_all(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
        if document
    ]
