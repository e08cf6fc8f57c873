"""Write what of the chart follows from the code: rules of RBAC, definitions, plain manifests.

The rules of the embedded API server's role for the controller follow from the same permissions.

Run by `make chart`, which needs helm for the manifests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

from gatehouse.controller import permissions

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "gatehouse"
BUNDLED = ROOT / "src" / "gatehouse" / "apiserver_extension" / "bundled"
EMBEDDED_RULES = ROOT / "src" / "gatehouse" / "apiserver_extension" / "controller_rules.json"
OURS = ("gatehouse.dev", "gateway.nginx.org", "proxy.kubegateway.io")
"""API groups whose CRDs only this chart installs."""

RULES = {
    "cluster": permissions.watch_permissions()
    | permissions.status_permissions()
    | permissions.write_permissions()
    | permissions.token_review_permissions()
    | permissions.data_plane_pod_permissions(),
    "copies": permissions.secret_copy_permissions(),
    "own-namespace": permissions.leader_election_permissions()
    | permissions.leader_label_permissions(),
}


def rules() -> dict[str, str]:
    """Return the generated files with RBAC rules."""
    return {
        f"rules/{name}.yaml": yaml.safe_dump(
            permissions.rbac_rules(rule_list), sort_keys=False, default_flow_style=None, width=100
        )
        for name, rule_list in RULES.items()
    }


def embedded_rules() -> str:
    """Return the rules of the embedded API server's role for the controller."""
    lines = map(json.dumps, permissions.rbac_rules(permissions.all_permissions()))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def definitions() -> dict[str, str]:
    """Return the generated files with CRDs."""
    result = {}
    for file in sorted(BUNDLED.glob("*.json")):
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["spec"]["group"] in OURS:
            result[f"crds/{file.stem}.yaml"] = yaml.dump(
                document, Dumper=yaml.CSafeDumper, sort_keys=True, width=100
            )
    return result


def manifests(helm: str) -> str:
    """Return all manifests that the chart creates by default, and the CRDs."""
    words = ("template", "gatehouse", str(CHART), "--namespace", "gatehouse-system")
    done = subprocess.run(
        [helm, *words, "--include-crds", "--kube-version", "1.34"],
        capture_output=True,
        text=True,
        check=True,
    )
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: gatehouse-system}\n---\n"
    return namespace + done.stdout


def main() -> None:
    """Write the files; with the path of helm, the manifests, too."""
    EMBEDDED_RULES.write_text(embedded_rules(), encoding="utf-8")
    for path, text in {**rules(), **definitions()}.items():
        (CHART / path).parent.mkdir(exist_ok=True)
        (CHART / path).write_text(text, encoding="utf-8")
    if len(sys.argv) > 1:
        target = ROOT / "deploy"
        target.mkdir(exist_ok=True)
        (target / "gatehouse.yaml").write_text(manifests(sys.argv[1]), encoding="utf-8")


if __name__ == "__main__":
    main()
