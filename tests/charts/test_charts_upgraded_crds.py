"""CRDs of a new version replace those that helm installed, as the page on upgrades says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes import kubectls
from fakes.administrator import CHART, ROOT, Cluster
from fakes.process import ApiServer

CRDS = "charts/gatehouse/crds"
PAGE = ROOT / "docs" / "tasks" / "upgrade.md"

pytestmark = pytest.mark.process


@pytest.fixture(
    params=[
        pytest.param("kube-apiserver", marks=pytest.mark.peers),
        "embedded",
    ]
)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.param == "kube-apiserver":
        yield Cluster(request.getfixturevalue("kube_apiserver").kubeconfig, tmp_path)
        return
    server = ApiServer(tmp_path / "state")
    server.start()
    try:
        yield Cluster(server.kubeconfig, tmp_path)
    finally:
        server.kill()


def command() -> list[str]:
    """Return the command of the first step of the page."""
    (text,) = re.findall(rf"`(kubectl apply [^`]*{CRDS})`", PAGE.read_text())
    return shlex.split(text)[1:]


def write(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write the chart's CRDs, in groups that only this test uses, after a change of each."""
    directory.mkdir()
    for path in sorted((CHART / "crds").iterdir()):
        crd = yaml.load(path.read_text(), yaml.CSafeLoader)
        crd["spec"]["group"] += ".upgrade.example"
        crd["metadata"]["name"] += ".upgrade.example"
        change(crd)
        (directory / f"{path.stem}.json").write_text(json.dumps(crd))


def describe(crd: dict[str, Any]) -> None:
    for version in crd["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["description"] = "Changed."


def test_crds_of_helm_are_upgraded_as_documented(cluster: Cluster, tmp_path: Path) -> None:
    write(tmp_path / "old", lambda _: None)
    write(tmp_path / "new", describe)
    cluster.kubectl("create", "--field-manager=helm", "--filename", str(tmp_path / "old"))
    # The server stores what the files have: the same again is no conflict with helm.
    apply = ("apply", "--server-side", "--filename")
    cluster.kubectl(*apply, str(tmp_path / "old"), "--field-manager=same")
    done = cluster.run(kubectls.newest(), *apply, str(tmp_path / "new"))
    assert done.returncode == 1
    assert re.search('conflicts? with "helm"', done.stderr)
    words = [str(tmp_path / "new") if word == CRDS else word for word in command()]
    output = cluster.kubectl(*words)
    assert output.count("serverside-applied") == len(list((CHART / "crds").iterdir()))
    for path in (tmp_path / "new").iterdir():
        (version,) = cluster.get("crd", json.loads(path.read_text())["metadata"]["name"])["spec"][
            "versions"
        ]
        assert version["schema"]["openAPIV3Schema"]["description"] == "Changed."


def test_bundled_crds_are_upgraded_as_documented(tmp_path: Path) -> None:
    """The embedded API server owns no field of the CRDs that it installed."""
    server = ApiServer(tmp_path / "state")
    server.start()
    try:
        cluster = Cluster(server.kubeconfig, tmp_path)
        words = [str(CHART / "crds") if word == CRDS else word for word in command()]
        cluster.kubectl(*words)
        cluster.kubectl(*[word for word in words if word != "--force-conflicts"])
        plain = str(ROOT / "deploy" / "gatehouse.yaml")
        cluster.kubectl("apply", "--server-side", "--filename", plain)
    finally:
        server.kill()
