"""Resources of Envoy as people read them."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory

from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import (
    LISTENER,
    PREFIX,
    SECRET,
    SIDECAR_CONFIG,
    Resource,
    ResourceSet,
)

_MANAGER = "envoy.filters.network.http_connection_manager"


def format_resources(resources: ResourceSet, *, whole: bool = False) -> dict[str, list[Any]]:
    """Return the resources of each kind, by name. ``whole`` adds parts common to all ports."""
    result = {}
    for kind, named in sorted(resources.by_type.items()):
        if kind != SECRET:
            made = [message_fields(each) for _, each in sorted(named.items())]
            result[kind.rpartition(".")[2]] = made
            if kind == LISTENER and not whole:
                for listener in made:
                    _shorten(listener)
    return result


def message_fields(resource: Resource) -> dict[str, Any]:
    """Return a resource as its fields."""
    if resource.type_url == SIDECAR_CONFIG:
        return {
            "name": resource.name,
            "files": _format_sidecar_configs(sidecar_configs.files(resource)),
        }
    name = resource.type_url.removeprefix(PREFIX)
    made = _class_of(name)()
    made.ParseFromString(resource.body)
    document: dict[str, Any] = json.loads(
        json_format.MessageToJson(made, preserving_proto_field_name=True)
    )
    return document


def _format_sidecar_configs(files: dict[str, bytes]) -> dict[str, Any]:
    """Return sidecar configurations without secret values."""
    return {
        path: json.loads(content) if path.endswith(".json") else "…"
        for path, content in files.items()
    }


def _class_of(name: str) -> Any:
    return message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))


def _shorten(listener: dict[str, Any]) -> None:
    """Leave out how HTTP is spoken to clients."""
    for chain in listener.get("filter_chains", ()):
        for each in chain["filters"]:
            if each["name"] == _MANAGER:
                each["typed_config"] = "…"
