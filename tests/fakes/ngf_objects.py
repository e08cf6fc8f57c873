"""Objects of NGINX Gateway Fabric's sources, as the API server and the compiler get them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from fakes.admission import NOW, REGISTRY
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.incremental.query import Engine, Key, Snapshot

FALSE_IS_GOOD = frozenset(("Conflicted",))
"""Types of conditions that report a problem with status True."""


def admitted(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Return the objects of files as the API server admits them."""
    result = [raw for text in texts for raw in yaml.load_all(text, yaml.CSafeLoader) if raw]
    for raw in result:
        problems = problems_of(raw)
        assert not problems, problems
        raw.pop("status", None)
        raw["metadata"].update(generation=1, creationTimestamp=NOW)
    return result


def problems_of(raw: dict[str, Any]) -> list[str]:
    """Default an object. Return why the API server rejects it, or warns about it."""
    served = REGISTRY.by_kind(raw["apiVersion"], raw["kind"])
    assert served is not None, raw
    if served.resource.namespaced:
        raw["metadata"].setdefault("namespace", "default")
    unknown = served.compiled.prepare(raw)
    served.complete(raw)
    causes = [*served.compiled.validate(raw, None), *served.check(raw, None)]
    return [*map(str, unknown), *(cause.message for cause in causes)]


def engine_of(objects: list[dict[str, Any]], controller: str) -> Engine:
    """Return an engine with objects, and with the class and the namespaces that they name."""
    engine = Engine(Snapshot(combined.INDEXES))
    settings = gateway_api.ControllerSettings(bind="any", snippets=True, external_names=("*",))
    gateway_class = {"metadata": {"name": "nginx"}, "spec": {"controllerName": controller}}
    changes: dict[Key, Any] = {
        gateway_api.SETTINGS_KEY: settings,
        ("GatewayClass", "", "nginx"): combined.decode_object("GatewayClass", gateway_class),
    }
    for name in ("default", "certificate", "cafe"):
        namespace = {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
        changes["Namespace", "", name] = combined.decode_object("Namespace", namespace)
    for raw in objects:
        kind, metadata = raw["kind"], raw["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        if kind in combined.KINDS.by_name:
            changes[key] = combined.decode_object(kind, raw)
        if kind == "Gateway":
            changes["Programming", *key[1:]] = gateway_api.ProgrammedInput(programmed=True)
    engine.commit(changes)
    return engine


def bad_conditions(engine: Engine) -> dict[str, str]:
    """Return the messages of all conditions that report a problem, by object and condition."""
    result = {}
    with engine.compile() as ask:
        for key in ask(combined.status_subjects):
            status = ask(combined.desired_status, key)
            if status is None:
                continue
            merged = combined.merge_combined_status(key[0], None, status, NOW)
            for condition in conditions_in(merged):
                good = "False" if condition["type"] in FALSE_IS_GOOD else "True"
                message = condition["message"]
                if condition["status"] != good or "not supported" in message:
                    name = f"{key[0]} {key[2]}: {condition['type']}={condition['reason']}"
                    result[name] = message
    return result


def conditions_in(value: Any) -> list[dict[str, Any]]:
    """Return all conditions in a status."""
    if isinstance(value, list):
        return [condition for item in value for condition in conditions_in(item)]
    if not isinstance(value, dict):
        return []
    below = [
        condition
        for name, inner in value.items()
        if name != "conditions"
        for condition in conditions_in(inner)
    ]
    return [*value.get("conditions", []), *below]
