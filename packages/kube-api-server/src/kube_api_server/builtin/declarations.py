"""Declaration of a built-in kind, with the schema of its type."""

from __future__ import annotations

from typing import Any

from kube_api_server.builtin.columns import COLUMNS
from kube_api_server.objects.served_resource import ServedResource
from kube_base.types.builtin_types import schemas
from kube_base.types.resource import Resource


def declare_kind(
    group: str,
    plural: str,
    kind: str,
    *,
    cluster: bool = False,
    version: str = "v1",
    stored: str = "",
    **rest: Any,
) -> ServedResource:
    """Build the served resource of a kind. `rest` are further attributes of it."""
    package = group.split(".")[0] or "core"
    return ServedResource(
        resource=Resource(group, version, plural, kind, namespaced=not cluster),
        schema=_without_head(schemas.schema_of(f"{package}.{version}.{kind}")),
        storage_version=stored or version,
        **{"columns": COLUMNS.get(plural, ()), **rest},
    )


def _without_head(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that does not require metadata, which is validated separately."""
    required = [name for name in schema.get("required", ()) if name != "metadata"]
    return {**schema, "required": required}
