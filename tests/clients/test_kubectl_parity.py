"""Output of kubectl, compared with that which a kube-apiserver gave.

`make peers` records the output with kube-apiserver again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.kube_parity import commands
from fakes.kubectl_fixtures import BINARIES, server
from fakes.kubectls import Kubectl
from fakes.process import ApiServer

__all__ = ["server"]

pytestmark = pytest.mark.process


@pytest.mark.parametrize("binary", BINARIES, ids=str)
def test_output_is_that_with_a_kube_apiserver(
    server: ApiServer, tmp_path: Path, binary: str
) -> None:
    kubectl = Kubectl(binary, server.kubeconfig, tmp_path, "")
    kubectl.namespace = f"parity-commands-{kubectl.minor}"
    if str(kubectl.minor) not in commands.read_record():
        pytest.skip(f"no results of kubectl 1.{kubectl.minor} are recorded")
    differences = commands.differences(kubectl.minor, commands.collect(kubectl, server.port))
    assert not differences, "\n".join(map(str, differences))


@pytest.mark.parametrize("binary", BINARIES, ids=str)
def test_permanent_namespaces_survive_the_deletion_of_all(
    server: ApiServer, tmp_path: Path, binary: str
) -> None:
    kubectl = Kubectl(binary, server.kubeconfig, tmp_path, "default")
    permanent = ["default", "kube-node-lease", "kube-public", "kube-system"]
    kubectl("create", "namespace", "shop")
    for name in permanent:
        message = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        assert message in kubectl.fails("delete", "namespace", name, "--wait=false")
        assert message in kubectl.fails("delete", "namespace", name, "--dry-run=server")
    out = kubectl.fails("delete", "namespaces", "--all")
    assert out.count("this namespace may not be deleted") == len(permanent)
    assert kubectl("get", "namespaces", "-o", "name").split() == [
        f"namespace/{name}" for name in permanent
    ]
    assert "kubernetes" in kubectl("get", "services", "-o", "name")


@pytest.mark.parametrize("binary", BINARIES, ids=str)
def test_debug_reports_what_the_server_lacks(
    server: ApiServer, tmp_path: Path, binary: str
) -> None:
    kubectl = Kubectl(binary, server.kubeconfig, tmp_path, "default")
    kubectl("run", "web", "--image=registry.example.com/web", "--restart=Never")
    out = kubectl.fails("debug", "web", "--image=registry.example.com/tools")
    assert "ephemeral containers are disabled for this cluster" in out
    assert "panic" not in out
