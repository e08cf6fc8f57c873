"""Gateway API objects get the same result and messages as from a Kubernetes API server.

`validation_cases/` has valid and invalid objects with the response of Kubernetes 1.34. For every
rule and every limit of the CRDs it has an object that breaks it and one that does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.validation_cases import FILES, REGISTRY, Object, case_object, read_cases
from kube_api_server.errors import StatusError
from kube_api_server.objects.admission import Admission
from kube_api_server.objects.served_resource import ServedResource
from kube_api_server.objects.write_request import WriteOptions, WriteRequest
from kube_api_server.storage.encryption import IdentityTransformer
from kube_api_server.storage.names import DEFAULT_NAMES
from kube_api_server.storage.sqlite.log import Log
from kube_api_server.storage.sqlite.store import SqliteStore
from kube_api_server.structural.compiled import compile_schema


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
    return Admission(
        REGISTRY, SqliteStore(Log(tmp_path / "db"), IdentityTransformer(DEFAULT_NAMES))
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_validation_results_equal_those_of_kubernetes(
    admission: Admission, path: Path
) -> None:
    document = read_cases(path)
    served = REGISTRY.by_kind(document["apiVersion"], document["kind"])
    assert served is not None
    wrong = []
    for case in document["cases"]:
        result = await judged(
            admission, served, case_object(case, document["bases"]), case.get("old")
        )
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
    documents = [read_cases(path) for path in FILES]
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
