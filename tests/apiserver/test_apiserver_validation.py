"""Gateway API objects get the same result and messages as from a Kubernetes API server.

`validation_cases/` has valid and invalid objects with the response of Kubernetes 1.34. For every
rule and every limit of the CRDs it has an object that breaks it and one that does not.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gatehouse.apiserver.builtin.kinds import BUILTIN_KINDS
from gatehouse.apiserver.controllers.bootstrap import bundled
from gatehouse.apiserver.errors import StatusError
from gatehouse.apiserver.objects.admission import Admission
from gatehouse.apiserver.objects.crds import served_by
from gatehouse.apiserver.objects.registry import Registry
from gatehouse.apiserver.objects.served_resource import ServedResource
from gatehouse.apiserver.objects.write_request import WriteOptions, WriteRequest
from gatehouse.apiserver.storage.sqlite.log import Log
from gatehouse.apiserver.storage.sqlite.store import SqliteStore
from gatehouse.apiserver.structural.compiled import compile_schema

Object = dict[str, Any]

REGISTRY = Registry(
    (*BUILTIN_KINDS, *(resource for one in bundled() for resource in served_by(one)))
)
FILES = sorted(Path(__file__).with_name("validation_cases").glob("*.yaml"))


def read(path: Path) -> Object:
    document: Object = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    return document


def expanded(value: Any) -> Any:
    """Expand `{$repeat: [text, times]}`."""
    if isinstance(value, dict):
        if set(value) == {"$repeat"}:
            return value["$repeat"][0] * value["$repeat"][1]
        return {key: expanded(item) for key, item in value.items()}
    return [expanded(item) for item in value] if isinstance(value, list) else value


def built(case: Object, bases: Object) -> Object:
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


async def judged(
    admission: Admission, served: ServedResource, obj: Object, old: Object | None
) -> Object:
    """Return the server's response to an object, in the form of the files."""
    namespace = "default" if served.resource.namespaced else ""
    call = WriteRequest(served, namespace, "sample", "", WriteOptions("Strict"))
    whole = {"metadata": {"name": "sample"}, **obj}
    before = None if old is None else {"metadata": {"name": "sample"}, "spec": old}
    try:
        admission.prepare(call, whole, before or {})
        await admission.run_admission_policies(call, whole, before)
    except StatusError as error:
        if error.code != 422:
            return {"code": error.code, "message": error.message}
        causes = sorted([c.reason, c.field, c.message] for c in error.causes)
        return {"causes": causes}
    return {"valid": True, "spec": whole["spec"]}


@pytest.fixture
async def admission(tmp_path: Path) -> Admission:
    return Admission(REGISTRY, SqliteStore(Log(tmp_path / "db")))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_validation_results_equal_those_of_kubernetes(
    admission: Admission, path: Path
) -> None:
    document = read(path)
    served = REGISTRY.by_kind(document["apiVersion"], document["kind"])
    assert served is not None
    wrong = []
    for case in document["cases"]:
        result = await judged(admission, served, built(case, document["bases"]), case.get("old"))
        expected = {key: case[key] for key in ("valid", "causes", "code", "message") if key in case}
        if expected.get("valid"):
            expected["spec"] = case.get("stored", result.get("spec"))
        if result != expected:
            wrong.append({**case, "found": result})
    excerpt = "\n".join(
        msgspec.json.encode(difference).decode()[:1500] for difference in wrong[:20]
    )
    assert not wrong, f"{len(wrong)} of {len(document['cases'])} results differ:\n{excerpt}"


def test_valid_and_invalid_cases_are_numerous() -> None:
    documents = [read(path) for path in FILES]
    cases = [case for document in documents for case in document["cases"]]
    valid = sum(case.get("valid", False) for case in cases)
    assert valid >= 150
    assert len(cases) - valid >= 150


def test_schema_that_requires_metadata_accepts_complete_objects() -> None:
    schema = {
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["metadata"],
                "properties": {"metadata": {"type": "string"}},
            }
        },
    }
    compiled = compile_schema(schema)
    complete = {"apiVersion": "e/v1", "kind": "K", "metadata": {"name": "k"}}
    spec: dict[str, Any] = {"metadata": "m"}
    assert compiled.validate({**complete, "spec": spec}, None) == []
    assert [cause.field for cause in compiled.validate(complete, None)] == ["spec"]
    (inner,) = compiled.validate({**complete, "spec": {}}, None)
    assert inner.field == "spec.metadata"
