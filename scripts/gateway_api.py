"""Write the definitions of the Gateway API that Gatehouse brings along.

Run by `make gateway-api` on a machine with Go, for a newer release of the Gateway API. The
descriptions of fields stay: `kubectl explain` prints them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

VERSION = "1.7.0"
CHANNEL = "experimental"
"""The channel that has every field of every kind."""


def source() -> Path:
    """Return the directory of the published CRDs; download them first if necessary."""
    with tempfile.TemporaryDirectory() as scratch:
        command = ["go", "mod", "download", "-json", f"sigs.k8s.io/gateway-api@v{VERSION}"]
        environment = {**os.environ, "GOTOOLCHAIN": "go1.27.0"}
        answer = subprocess.run(
            command, cwd=scratch, env=environment, capture_output=True, check=True
        )
    return Path(json.loads(answer.stdout)["Dir"]) / "config" / "crd" / CHANNEL


def main() -> None:
    """Write one file per kind into the directory given."""
    target = Path(sys.argv[1])
    for old in target.glob("*.gateway.networking*.json"):
        old.unlink()
    for path in sorted(source().glob("gateway.networking*.yaml")):
        definition = next(yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader))
        if definition["kind"] != "CustomResourceDefinition":
            continue
        definition.pop("status", None)
        text = json.dumps(definition, indent=1, sort_keys=True)
        (target / f"{definition['metadata']['name']}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
