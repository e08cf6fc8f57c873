"""Types of bodies that are not stored: reviews, token requests and delete options."""

from __future__ import annotations

import functools
from typing import Any

from kube_api_server.errors import bad_request
from kube_api_server.structural.compiled import CompiledSchema, compile_schema
from kube_base.types.builtin_types import schemas
from kube_base.types.objects import Object


@functools.cache
def of_kind(name: str) -> CompiledSchema:
    """Return the schema of a type of the Kubernetes API, such as ``meta.DeleteOptions``."""
    return compile_schema(schemas.schema_of(name))


def check_types(body: Any, kind: str, schema: CompiledSchema) -> Object:
    """Return a body whose fields have the types of its schema, without unknown ones.

    Raises ApiError 400.
    """
    if not isinstance(body, dict):
        raise bad_request(f"{kind} must be an object")
    if not isinstance(body.get("metadata") or {}, dict):
        raise bad_request(f"{kind}: metadata must be an object")
    schema.prepare(body)
    for cause in schema.validate(body, None):
        if cause.reason == "FieldValueTypeInvalid":
            raise bad_request(f"{kind}: {cause.field}: {cause.message}")
    return body
