"""The official Gateway API definitions, both channels, applied as their documentation says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.kubectl_fixtures import kubectl, server
from fakes.kubectls import Kubectl
from fakes.patience import KUBECTL_TIMEOUT
from fakes.process import ApiServer

pytestmark = [pytest.mark.process, pytest.mark.slow]

MODULE = "sigs.k8s.io/gateway-api@v1.7.0"
TOOLCHAIN = "go1.27.0"
"""The oldest Go that reads the module."""
KIND = "customresourcedefinition/httproutes.gateway.networking.k8s.io"
__all__ = ["kubectl", "server"]
CHANNEL = r"jsonpath={.metadata.annotations.gateway\.networking\.k8s\.io/channel}"


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go on this machine")
    answer = subprocess.run(
        [go, "mod", "download", "-json", MODULE],
        cwd=tmp_path_factory.mktemp("module"),
        env={**os.environ, "GOTOOLCHAIN": TOOLCHAIN},
        capture_output=True,
        check=True,
    ).stdout
    return Path(json.loads(answer)["Dir"]) / "config" / "crd"


def route(**rule: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "r"},
        "spec": {"rules": [{"backendRefs": [{"name": "s", "port": 80}], **rule}]},
    }


SESSION = {"type": "Cookie", "cookie": {"name": "c", "path": "/", "lifetimeType": "Session"}}
EXPERIMENTAL = route(sessionPersistence=SESSION)


def test_standard_and_experimental_channels_are_applied(
    official: Path, kubectl: Kubectl, server: ApiServer
) -> None:
    apply = ("apply", "--server-side", "--force-conflicts", "-f")
    files = sorted((official / "experimental").glob("gateway.*"))
    experimental = ",".join(map(str, files))
    done = kubectl(*apply, str(official / "standard"))
    assert done.count("serverside-applied") == len(list((official / "standard").glob("*.yaml"))) + 1
    kubectl("wait", "--for=condition=Established", KUBECTL_TIMEOUT, KIND)
    assert kubectl("get", KIND, "-o", CHANNEL) == "standard"

    # The standard channel does not have what the experimental one has.
    loose = ("--validate=false",) if kubectl.minor < 25 else ("--validate=warn",)
    kubectl("create", *loose, "-f", "-", stdin=EXPERIMENTAL)
    assert "sessionPersistence" not in kubectl.json("get", "httproute", "r")["spec"]["rules"][0]
    kubectl("delete", "httproute", "r")

    # Its policy keeps the experimental channel away until the policy goes.
    refused = kubectl.fails(*apply, experimental)
    assert "Installing experimental CRDs on top of standard channel CRDs is prohibited" in refused
    assert kubectl("get", KIND, "-o", CHANNEL) == "standard"
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        kubectl("delete", kind, "safe-upgrades.gateway.networking.k8s.io")
    kubectl(*apply, experimental)
    assert kubectl("get", KIND, "-o", CHANNEL) == "experimental"
    kubectl("create", *loose, "-f", "-", stdin=EXPERIMENTAL)
    rule = kubectl.json("get", "httproute", "r")["spec"]["rules"][0]
    assert rule["sessionPersistence"] == SESSION

    # CRDs that a user installed stay unchanged, also after a restart.
    kubectl(*apply, str(official / "standard" / "gateway.networking.k8s.io_httproutes.yaml"))
    server.kill()
    server.start()
    assert kubectl("get", KIND, "-o", CHANNEL) == "standard"
    bad = route(filters=[{"type": "RequestRedirect"}])
    bad["metadata"]["name"] = "bad"
    assert (
        "filter.requestRedirect must be specified for RequestRedirect filter.type"
        in kubectl.fails("create", *loose, "-f", "-", stdin=bad)
    )
