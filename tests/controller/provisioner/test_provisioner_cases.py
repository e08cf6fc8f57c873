"""Gateways and their parameters in, everything that is made for them out.

Every directory of ``cases`` holds ``input.yaml``, and ``objects.yaml`` with what is made for each
Gateway. ``make golden`` rewrites what is expected; read the diff.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from fakes.admission import admitted_objects
from gatehouse.apis.data_plane_workload import NetworkOptions
from gatehouse.compiler.frontends import gateway_api
from gatehouse.controller.compilation import Compilation
from gatehouse.controller.provisioner.copied_secrets import CopiedSecret
from gatehouse.controller.provisioner.manifests import ProvisionerSettings, desired
from gatehouse.controller.provisioner.network_policy import ReachableServer
from gatehouse.controller.provisioner.patches import PatchError
from gatehouse.controller.provisioner.pod_security import Level

HERE = Path(__file__).parent / "cases"
CASES = sorted(path.parent.name for path in HERE.glob("*/input.yaml"))

SETTINGS = ProvisionerSettings(
    images={"nginx": "example.com/nginx:1", "envoy": "example.com/envoy:1"},
    agent_host="control.system.svc",
    agent_port=443,
    server_name="control.system.svc",
    ca_bundle="PEM",
    audience="control",
)
WITH_POLICIES = msgspec.structs.replace(
    SETTINGS,
    network_policy=NetworkOptions(enable=True),
    servers=(
        ReachableServer("control.system.svc", (443, 8443)),
        ReachableServer("192.0.2.7", (8081,)),
    ),
)
COPIES = (
    CopiedSecret(
        "registry", "pull", "kubernetes.io/dockerconfigjson", {".dockerconfigjson": "e30="}
    ),
    CopiedSecret("plus", "license", data={"license.jwt": "eA=="}),
)

BASE = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: nginx}
spec: {controllerName: gatehouse.dev/nginx}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: envoy}
spec: {controllerName: gatehouse.dev/envoy}
---
apiVersion: v1
kind: Namespace
metadata: {name: ns}
"""


def made(case: str) -> str:
    text = (HERE / case / "input.yaml").read_text(encoding="utf-8")
    # Most cases are about what is made of a field, wherever it is allowed.
    overrides = "limited" not in case
    compilation = Compilation(
        gateway_api.ControllerSettings(bind="any", workload_overrides=overrides)
    )
    gateways: dict[tuple[str, str], dict[str, Any]] = {}
    for kind, raw in [*admitted_objects(BASE), *admitted_objects(text)]:
        metadata = raw["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        compilation.put(kind, key, raw)
        if kind == "Gateway":
            gateways[key] = {**raw, "metadata": {**metadata, "uid": f"uid-of-{key[1]}"}}
    copies = COPIES if "copied" in case else ()
    settings = WITH_POLICIES if "network-policies" in case else SETTINGS
    level: Level = "privileged" if overrides else "restricted"
    settings = msgspec.structs.replace(settings, copies=copies, pod_security=level)
    documents: list[Any] = []
    for (_, *name), plan in compilation.run().plans.items():
        if plan.waiting:
            documents.append({"gateway": name[1], "waiting": plan.waiting})
            continue
        try:
            objects = [obj for _, obj in desired(gateways[(name[0], name[1])], settings, plan)]
        except PatchError as error:
            documents.append({"gateway": name[1], "refused": str(error)})
            continue
        about = "NetworkPolicy" if "network-policies" in case else ""
        documents += [obj for obj in objects if about in obj["kind"]]
    return yaml.dump_all(documents, Dumper=Plain, sort_keys=True, width=100)


class Plain(yaml.SafeDumper):
    """Writes what is shared twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


@pytest.mark.parametrize("case", CASES)
def test_provisioned_objects_match_expected_objects(
    case: str, request: pytest.FixtureRequest
) -> None:
    expected = HERE / case / "objects.yaml"
    text = made(case)
    if request.config.getoption("--refresh-golden"):
        expected.write_text(text, encoding="utf-8")
    assert expected.read_text(encoding="utf-8") == text
