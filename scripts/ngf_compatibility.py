"""Write the page that compares the fields of NGINX Gateway Fabric with those served here.

Run by `make ngf-compatibility CRDS=<file> RELEASE=<release>`: the file has the CRDs of that release
of NGINX Gateway Fabric. Only names of fields and values are read from it. `ngf_support.json` says
what each proxy serves. Its entries name kind and field, and hold for the fields below, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from nginx_gateway import SPECS
from openapi_schemas import Schema

GROUP = "gateway.nginx.org"
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "compatibility-ngf.md"
SUPPORT = Path(__file__).with_name("ngf_support.json")

HEAD = """# Fields of NGINX Gateway Fabric

<!-- Written by `make ngf-compatibility`. Do not edit. -->

The table has each field of `spec` of each kind of `gateway.nginx.org`, in NGINX Gateway Fabric
{release} and here. A field without fields below it stands for all of its content. The API server
drops a field that is not defined here, and `kubectl` shows a warning.
[Policies of gateway.nginx.org](nginx-policies.md) describes the behaviour.

| column | content |
| --- | --- |
| defined by | `both`, `NGF` (NGINX Gateway Fabric only) or `here` (not in that release) |
| NGINX, Envoy | `yes`, `partly` or `no`: served by Gatehouse on that proxy |
"""


class Support(NamedTuple):
    """Support of a field by each proxy, and the reason if it is not complete."""

    nginx: str
    envoy: str
    note: str


class Row(NamedTuple):
    """A row of the table."""

    field: str
    defined_by: str
    support: Support


def schema_fields(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield the path and the schema of each field of a schema, parents first."""
    for name, child in (schema.get("properties") or {}).items():
        path = f"{prefix}{name}"
        yield path, child
        yield from schema_fields(child, f"{path}.")
        if isinstance(child.get("items"), dict):
            yield from schema_fields(child["items"], f"{path}[].")


def ngf_specs(text: str) -> dict[str, Schema]:
    """Return the schema of `spec` of each kind in a file of CRDs, from the stored version.

    Raises ValueError if the file has no CRD of the group.
    """
    specs = {
        crd["spec"]["names"]["kind"]: version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for crd in yaml.safe_load_all(text)
        if isinstance(crd, dict) and crd.get("kind") == "CustomResourceDefinition"
        if crd["spec"]["group"] == GROUP
        for version in crd["spec"]["versions"]
        if version["storage"]
    }
    if not specs:
        raise ValueError(f"the file has no CRD of the group {GROUP}")
    return specs


def is_below(path: str, parent: str) -> bool:
    """Return whether a field is part of another one."""
    return path.startswith((f"{parent}.", f"{parent}[]."))


def missing_values(own: Schema, other: Schema) -> list[str]:
    """Return the values of an enum of ``other`` that ``own`` does not accept."""
    return sorted(set(other.get("enum", ())) - set(own["enum"])) if "enum" in own else []


def rows(kind: str, own: Schema, other: Schema, support: dict[str, Support]) -> Iterator[Row]:
    """Yield the rows of a kind. Raises KeyError for a field without an entry in ``support``."""
    served, known = dict(schema_fields(own)), dict(schema_fields(other))
    whole = [path for path in served if not any(is_below(ancestor, path) for ancestor in served)]
    hidden = (*whole, *(path for path in known if path not in served))
    for path in sorted(
        {*served, *(known_path for known_path in known if not _within(known_path, hidden))}
    ):
        entry = _entry(f"{kind} {path}", kind, support)
        if path in served and path in known:
            yield Row(path, "both", _with_values(entry, missing_values(served[path], known[path])))
        else:
            yield Row(path, "here" if path in served else "NGF", entry)


def _with_values(entry: Support, values: list[str]) -> Support:
    """Return the entry of a field that does not accept some values."""
    if not values:
        return entry
    rejected = f"rejected values: {', '.join(values)}"
    return entry._replace(note="; ".join(filter(None, (entry.note, rejected))))


def _within(path: str, parents: tuple[str, ...]) -> bool:
    return any(is_below(path, parent) for parent in parents)


def _entry(name: str, kind: str, support: dict[str, Support]) -> Support:
    entries = [entry for entry in support if entry in (name, kind) or is_below(name, entry)]
    if not entries:
        raise KeyError(f"{name}: no entry in {SUPPORT.name}")
    return support[max(entries, key=len)]


def read_support() -> dict[str, Support]:
    """Return the entries of :data:`SUPPORT` by kind and field."""
    entries: list[list[str]] = json.loads(SUPPORT.read_text("utf-8"))
    return {name: Support(nginx, envoy, note) for name, nginx, envoy, note in entries}


def page(crds: str, release: str) -> str:
    """Return the page. ``crds``: the CRDs of that release."""
    others, support = ngf_specs(crds), read_support()
    lines = [HEAD.format(release=release)]
    empty: dict[str, Any] = {}
    for kind in sorted({*others, *SPECS}):
        lines += [f"## {kind}", "", "| field | defined by | NGINX | Envoy | note |"]
        lines += ["| --- | --- | --- | --- | --- |"]
        for row in rows(kind, SPECS.get(kind, empty), others.get(kind, empty), support):
            cells = (f"`spec.{row.field}`", row.defined_by, *row.support)
            lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Write the page. Arguments: file of CRDs, release."""
    crds, release = sys.argv[1:]
    try:
        content = page(Path(crds).read_text("utf-8"), release)
    except (OSError, ValueError, yaml.YAMLError) as error:
        sys.exit(f"{crds}: {error}")
    PAGE.write_text(content, "utf-8")


if __name__ == "__main__":
    main()
