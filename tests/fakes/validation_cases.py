"""Valid and invalid objects of Gateway API, in ``tests/apiserver/validation_cases/``."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from gatehouse.apiserver_extension.extension import bundled
from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_api_server.objects.crds import served_by
from kube_api_server.objects.registry import Registry

Object = dict[str, Any]

REGISTRY = Registry(
    (*BUILTIN_KINDS, *(resource for one in bundled() for resource in served_by(one)))
)
FILES = sorted((Path(__file__).parents[1] / "apiserver/validation_cases").glob("*.yaml"))


def read_cases(path: Path) -> Object:
    document: Object = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    return document


def expanded(value: Any) -> Any:
    """Expand `{$repeat: [text, times]}`."""
    if isinstance(value, dict):
        if set(value) == {"$repeat"}:
            return value["$repeat"][0] * value["$repeat"][1]
        return {key: expanded(item) for key, item in value.items()}
    return [expanded(item) for item in value] if isinstance(value, list) else value


def case_object(case: Object, bases: Object) -> Object:
    """Return the object of a case: complete, or one change of a base."""
    if "spec" in case:
        return {"spec": expanded(copy.deepcopy(case["spec"]))}
    obj: Object = {"spec": expanded(copy.deepcopy(bases[case["base"]]))}
    if "patch" in case:
        operation, path, *value = case["patch"]
        *way, last = (step.replace("~1", "/") for step in path.split("/")[1:])
        holder: Any = obj
        for step in way:
            holder = holder[int(step)] if isinstance(holder, list) else holder[step]
        if operation == "remove":
            del holder[last]
        elif last == "-":
            holder.append(expanded(value[0]))
        elif isinstance(holder, list):
            holder[int(last)] = expanded(value[0])
        else:
            holder[last] = expanded(value[0])
    return obj
