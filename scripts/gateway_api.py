"""Write the definitions of the Gateway API that Gatehouse brings along.

Run by `make gateway-api` on a machine with Go, when a newer Gateway API is to be followed. Kept is
the interface: names, versions, schemas, rules, columns. Prose is left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

VERSION = "1.6.1"
CHANNEL = "experimental"
"""The channel that has every field of every kind."""


def source() -> Path:
    """Return the directory of the published CRDs; download them first if necessary."""
    with tempfile.TemporaryDirectory() as scratch:
        command = ["go", "mod", "download", "-json", f"sigs.k8s.io/gateway-api@v{VERSION}"]
        answer = subprocess.run(command, cwd=scratch, capture_output=True, check=True)
    return Path(json.loads(answer.stdout)["Dir"]) / "config" / "crd" / CHANNEL


def without_prose(value: Any, *, names: bool = False) -> Any:
    """Drop descriptions; ``names``: the keys of ``value`` are names of fields, not keywords."""
    if isinstance(value, dict):
        return {
            key: without_prose(inner, names=key == "properties" and not names)
            for key, inner in value.items()
            if names or key != "description" or not isinstance(inner, str)
        }
    if isinstance(value, list):
        return [without_prose(item) for item in value]
    return value


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
        text = json.dumps(without_prose(definition), indent=1, sort_keys=True)
        (target / f"{definition['metadata']['name']}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
