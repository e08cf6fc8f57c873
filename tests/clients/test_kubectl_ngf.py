"""CRDs of NGINX Gateway Fabric, applied over those of the embedded API server and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes import peers
from fakes.kubectl_fixtures import kubectl, server
from fakes.kubectls import Kubectl
from fakes.process import ApiServer

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.peers]

OWN = Path(__file__).parents[2] / "charts" / "gatehouse" / "crds"
__all__ = ["kubectl", "server"]
GATEWAY = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw"}
SERVICE = {"group": "", "kind": "Service", "name": "s"}
RESOLVER = {"addresses": [{"type": "IPAddress", "value": "192.0.2.53"}]}


@pytest.fixture
def ngf(tmp_path: Path) -> Path:
    path = tmp_path / "crds.yaml"
    path.write_bytes(peers.source_file("ngf-v2.6.7", "deploy/crds.yaml"))
    return path


def nginx_object(kind: str, version: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"gateway.nginx.org/{version}",
        "kind": kind,
        "metadata": {"name": "o"},
        "spec": spec,
    }


def spec_after_create(kubectl: Kubectl, raw: dict[str, Any]) -> Any:
    """Create an object, and delete it. Return its spec as stored."""
    loose = ("--validate=false",) if kubectl.minor < 25 else ("--validate=warn",)
    kubectl("create", *loose, "-f", "-", stdin=raw)
    kind = f"{raw['kind']}.{raw['apiVersion'].rpartition('/')[2]}.gateway.nginx.org"
    stored = kubectl.json("get", kind, "o")
    kubectl("delete", kind, "o")
    return stored["spec"]


COMMON = [
    nginx_object("NginxProxy", "v1alpha2", dnsResolver=RESOLVER, workerConnections=2048),
    nginx_object(
        "UpstreamSettingsPolicy", "v1alpha1", targetRefs=[SERVICE], keepAlive={"connections": 3}
    ),
    nginx_object("ClientSettingsPolicy", "v1alpha1", targetRef=GATEWAY, body={"maxSize": "1m"}),
    nginx_object(
        "SnippetsFilter", "v1alpha1", snippets=[{"context": "http.server", "value": "# a"}]
    ),
]
"""Objects that both definitions have."""
ONLY_OWN = nginx_object("NginxProxy", "v1alpha2", useClusterIP=True)


def test_definitions_are_applied_over_each_other_without_conflicts(
    ngf: Path, kubectl: Kubectl, server: ApiServer
) -> None:
    category = ("get", "crd", "nginxproxies.gateway.nginx.org", "-o")
    names = "jsonpath={.spec.names.categories[0]}"
    assert kubectl(*category, names) == "gatehouse"
    applied = kubectl("apply", "--server-side", "-f", str(ngf))
    assert applied.count("serverside-applied") == ngf.read_text().count("\nkind: CustomResource")
    for raw in COMMON:
        stored = spec_after_create(kubectl, raw)
        assert {name: stored[name] for name in raw["spec"]} == raw["spec"]

    # Definitions of users stay after a restart.
    server.kill()
    server.start()
    assert kubectl(*category, names) == "nginx-gateway-fabric"

    applied = kubectl("apply", "--server-side", "-f", str(OWN))
    assert applied.count("serverside-applied") == len([*OWN.glob("*.yaml")])
    assert kubectl(*category, names) == "gatehouse"
    for raw in (*COMMON, ONLY_OWN):
        assert spec_after_create(kubectl, raw) == raw["spec"]
