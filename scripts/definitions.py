"""CRDs of the groups that Gatehouse brings along, from the schemas of their kinds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from descriptions import top_level
from openapi_schemas import STRING, Schema, fields

AGE: Schema = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def column(name: str, path: str, priority: int = 0) -> Schema:
    """Return a printer column."""
    column: Schema = {"name": name, "type": "string", "jsonPath": path}
    return column | ({"priority": priority} if priority else {})


def condition(kind: str, name: str = "") -> Schema:
    """Return the column of a condition of the object itself."""
    return column(name or kind, f'.status.conditions[?(@.type=="{kind}")].status')


def accepted_by(entries: str) -> list[Schema]:
    """Return the columns of a kind whose status has ``entries`` with a condition ``Accepted``."""
    path = f'.status.{entries}[*].conditions[?(@.type=="Accepted")].status'
    return [column("Accepted", path), AGE]


def definition(
    kind: str,
    api_version: str,
    spec: Schema,
    status: Schema,
    columns: list[Schema],
    short: str = "",
    *,
    scope: str = "Namespaced",
    needed: str = "spec",
) -> Schema:
    """Return the CRD of a kind."""
    group, _, version = api_version.partition("/")
    schema = fields(
        needed,
        apiVersion=STRING,
        kind=STRING,
        metadata={"type": "object"},
        spec=spec,
        status=status,
    )
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural(kind),
        "singular": kind.lower(),
        "categories": ["gatehouse"],
    }
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": top_level(kind, schema, api_version)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {
            "group": group,
            "names": names | ({"shortNames": [short]} if short else {}),
            "scope": scope,
            "versions": [served],
        },
    }


def plural(kind: str) -> str:
    """Return the plural of a kind in URLs."""
    lower = kind.lower()
    if lower.endswith("y"):
        return f"{lower[:-1]}ies"
    return lower if lower.endswith("s") else f"{lower}s"


def write(definitions: Iterable[Schema]) -> None:
    """Write one file per kind into the directory that the command line has."""
    for crd in definitions:
        text = json.dumps(crd, indent=1, sort_keys=True)
        (Path(sys.argv[1]) / f"{crd['metadata']['name']}.json").write_text(text + "\n")
