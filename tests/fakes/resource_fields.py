"""Resources of Envoy as people read them."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory

from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import (
    LISTENER_TYPE_URL,
    SECRET_TYPE_URL,
    SIDECAR_CONFIG_TYPE_URL,
    TYPE_URL_PREFIX,
    ResourceSet,
    XdsResource,
)

_MANAGER = "envoy.filters.network.http_connection_manager"


def format_resources(resources: ResourceSet, *, whole: bool = False) -> dict[str, list[Any]]:
    """Return the resources of each kind, by name. ``whole`` adds parts common to all ports."""
    result = {}
    for kind, named in sorted(resources.by_type.items()):
        if kind != SECRET_TYPE_URL:
            messages = [message_fields(resource) for _, resource in sorted(named.items())]
            result[kind.rpartition(".")[2]] = messages
            if kind == LISTENER_TYPE_URL and not whole:
                for listener in messages:
                    _shorten(listener)
    return result


def message_fields(resource: XdsResource) -> dict[str, Any]:
    """Return a resource as its fields."""
    if resource.type_url == SIDECAR_CONFIG_TYPE_URL:
        return {
            "name": resource.name,
            "files": _format_sidecar_configs(sidecar_configs.sidecar_files(resource)),
        }
    name = resource.type_url.removeprefix(TYPE_URL_PREFIX)
    message = _class_of(name)()
    message.ParseFromString(resource.body)
    document: dict[str, Any] = json.loads(
        json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None)
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
        for http_filter in chain["filters"]:
            if http_filter["name"] == _MANAGER:
                http_filter["typed_config"] = "…"
