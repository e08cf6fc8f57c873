"""Write the definitions of the Gateway API, and of its extensions, that Gatehouse brings along.

Run by `make gateway-api` on a machine with Go, for a newer release of one of them. The
descriptions of the Gateway API's fields stay: `kubectl explain` prints them. Those of its
extensions are in :mod:`taken_over_descriptions`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import descriptions
import taken_over_descriptions as texts
import yaml

SOURCES = {
    # The experimental channel has every field of every kind.
    "sigs.k8s.io/gateway-api@v1.7.0": "config/crd/experimental/gateway.networking*.yaml",
    "sigs.k8s.io/gateway-api-inference-extension@v1.6.0": (
        "config/crd/bases/inference.networking.k8s.io_*.yaml"
    ),
}
"""Go modules, each with the files of its CRDs."""


def sources() -> Iterator[Path]:
    """Yield the files of the published CRDs; download them first if necessary."""
    environment = {**os.environ, "GOTOOLCHAIN": "go1.27.0"}
    for module, pattern in SOURCES.items():
        with tempfile.TemporaryDirectory() as scratch:
            command = ["go", "mod", "download", "-json", module]
            answer = subprocess.run(
                command, cwd=scratch, env=environment, capture_output=True, check=True
            )
        yield from sorted(Path(json.loads(answer.stdout)["Dir"]).glob(pattern))


MESSAGES = {
    "self.kind != 'Service' || has(self.port)": "port must be set for a Service",
    "self.all(p1, self.exists_one(p2, p1.number==p2.number))": "the numbers of ports must differ",
}
"""Messages of rules of InferencePool."""


def describe_pool(definition: dict[str, Any]) -> None:
    """Replace the descriptions and messages in the definition of InferencePool."""
    group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"]
    for version in definition["spec"]["versions"]:
        schema = without_texts(version["schema"]["openAPIV3Schema"])
        own = {"spec": texts.INFERENCE_POOL, "status": texts.INFERENCE_POOL_STATUS}
        for name, fields in own.items():
            schema["properties"][name] = descriptions.described(schema["properties"][name], fields)
        api = f"{group}/{version['name']}"
        version["schema"]["openAPIV3Schema"] = descriptions.top_level(kind, schema, api)


def without_texts(schema: Any) -> Any:
    """Return a schema without descriptions, and with our messages of rules."""
    if isinstance(schema, list):
        return [without_texts(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "rule" in schema:
        return {**schema, "message": MESSAGES[schema["rule"]]}
    return {
        name: without_texts(value)
        for name, value in schema.items()
        if name != "description" or not isinstance(value, str)
    }


def main() -> None:
    """Write one file per kind into the directory given."""
    target = Path(sys.argv[1])
    for old in target.glob("*.*.networking.*k8s.io.json"):
        old.unlink()
    for path in sources():
        definition = next(yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader))
        if definition["kind"] != "CustomResourceDefinition":
            continue
        definition.pop("status", None)
        if definition["spec"]["names"]["kind"] == "InferencePool":
            describe_pool(definition)
        text = json.dumps(definition, indent=1, sort_keys=True)
        (target / f"{definition['metadata']['name']}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
