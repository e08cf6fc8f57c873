"""Engines of the compiler with admitted objects, and the statuses that they compile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from fakes.admission import NOW, admitted_objects
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.incremental.query import Ask, Engine, Key, Snapshot

Object = dict[str, Any]

CAPABLE_NGINX = nginx.NginxCapabilities.parse(
    "1.31.3",
    ("http_auth_request_module", "nginx-auth-jwt-0.14.2"),
    named_endpoints=True,
    connectors=True,
    authenticators=True,
    pickers=True,
)
"""An NGINX beside a Gatehouse agent with every sidecar."""


def engine_with(
    objects: Iterable[tuple[str, Object]], settings: gateway_api.ControllerSettings
) -> Engine:
    """Return an engine whose snapshot has the settings and the objects, each after its kind."""
    result = Engine(Snapshot(combined.INDEXES))
    changes: dict[Key, Any] = {gateway_api.SETTINGS_KEY: settings}
    for kind, raw in objects:
        metadata = raw["metadata"]
        if kind in combined.KINDS.by_name:
            key = (kind, metadata.get("namespace", ""), metadata["name"])
            changes[key] = combined.decode_object(kind, raw)
    result.commit(changes)
    return result


def merged_statuses(ask: Ask) -> Iterator[tuple[Key, bytes]]:
    """Yield the status of each object that has one, as it is written."""
    for key in ask(combined.status_subjects):
        status = ask(combined.desired_status, key)
        if status is not None:
            merged = combined.merge_combined_status(key[0], None, status, NOW)
            yield key, msgspec.json.encode(merged)


def commit_object(engine: Engine, text: str, *, delete: bool = False) -> None:
    """Admit one object in YAML, and write or delete it."""
    [(kind, raw)] = admitted_objects(text)
    key = (kind, raw["metadata"]["namespace"], raw["metadata"]["name"])
    engine.commit({key: None if delete else combined.decode_object(kind, raw)})
