"""The recorded output of kubectl with the kube-apiserver that other tests compare with."""

from __future__ import annotations

import pytest

from fakes.kube_apiserver import KubeApiserver
from fakes.kube_parity import commands
from fakes.kubectls import Kubectl, binaries

pytestmark = [pytest.mark.long, pytest.mark.process, pytest.mark.peers]


def test_recorded_output_of_kubectl_is_that_with_a_kube_apiserver(
    kube_apiserver: KubeApiserver, request: pytest.FixtureRequest
) -> None:
    for binary in binaries():
        kubectl = Kubectl(binary, kube_apiserver.kubeconfig, kube_apiserver.directory, "")
        kubectl.namespace = f"parity-commands-{kubectl.minor}"
        results = commands.collect(kubectl, kube_apiserver.port)
        if request.config.getoption("--peers-report"):
            commands.write_record(kubectl.minor, results)
        if str(kubectl.minor) in commands.read_record():
            differences = commands.differences(kubectl.minor, results)
            assert not differences, "\n".join(map(str, differences))
