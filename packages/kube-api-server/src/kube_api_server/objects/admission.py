"""Admission of writes: pruning, defaults, validation, and plug-ins by kind."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable
from contextlib import AbstractContextManager

from kube_api_server import errors, offload
from kube_api_server.errors import Cause, StatusError
from kube_api_server.objects import metadata as rules
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.served_resource import ServedResource
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object

PlugIn = Callable[[WriteRequest, Object, "Object | None"], None]
"""Receives a new object and its former state. May change the new object or raise ApiError."""

Policy = Callable[[WriteRequest, "Object | None", "Object | None"], tuple[str, ...]]
"""Receives the object of a write (None for a deletion) and its former state.

Return warnings, or raise ApiError.
"""

Reserve = Callable[[WriteRequest, Object, "Object | None"], AbstractContextManager[None]]
"""Receives an object and its former state. Entered while the object is written.

May raise ApiError when entered.
"""

NAMESPACES_PREFIX = "/core/namespaces/"
_MALFORMED = (TypeError, AttributeError, KeyError, ValueError)
"""Exceptions of code that reads a value of the wrong type."""
_MAX_PROBLEMS = 100
"""Maximum number of unknown and duplicate fields that a response names, as in Kubernetes."""
_OF_STATUS = ("apiVersion", "kind", "metadata", "status")
"""Fields of an object that a write of its status may change."""


def _no_policy(_: WriteRequest, __: Object | None, ___: Object | None) -> tuple[str, ...]:
    return ()


def _no_reservation(
    _: WriteRequest, __: Object, ___: Object | None
) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


class Admission:
    """Admission of writes to one store."""

    def __init__(self, registry: Registry, store: ObjectStore) -> None:
        self._registry, self._store = registry, store
        self.mutating: dict[str, list[PlugIn]] = {}
        """By plural name: called after defaults and before validation."""
        self.finishing: dict[str, list[PlugIn]] = {}
        """Called with valid objects, immediately before they are written."""
        self.policy: Policy = _no_policy
        """Called with every valid object and every deletion."""
        self.reserve: Reserve = _no_reservation
        """Entered with every object that is written, for the duration of the write."""

    def prepare(self, call: WriteRequest, obj: Object, old: Object | None) -> tuple[str, ...]:
        """Prune `obj` and set its defaults, in place. Return warnings. Raises ApiError."""
        check_location(call, obj["metadata"])
        if old is None:
            self._namespace(call)
        part = obj
        if call.subresource == "status" and not call.served.builtin:
            # The rest stays as it is, even fields that the schema no longer has.
            part = {key: obj[key] for key in _OF_STATUS if key in obj}
        warnings = self.known_fields(call, part)
        obj.update((key, part[key]) for key in _OF_STATUS if key in part)
        # An exception here means a wrong type, which validation reports.
        with contextlib.suppress(*_MALFORMED):
            call.served.complete(obj)
        return warnings

    async def run_admission_policies(
        self, call: WriteRequest, obj: Object, old: Object | None, size: int = 0
    ) -> tuple[str, ...]:
        """Mutate `obj` by plug-ins, validate it and apply policies.

        Return warnings. Raises ApiError. Objects of a large `size` are validated in a thread,
        except those that plug-ins may have given an address: no other write may get it meanwhile.
        """
        plug_ins = self.mutating.get(call.served.resource.plural, ())
        with contextlib.suppress(*_MALFORMED):
            for plug_in in plug_ins:
                plug_in(call, obj, old)
        validate = functools.partial(_validate, call, obj, old)
        await offload.run_offloaded(validate, 0 if plug_ins else size)
        return self.policy(call, obj, old)

    def finish(self, call: WriteRequest, obj: Object, old: Object | None) -> None:
        """Call the plug-ins of an object that is about to be written. Raises ApiError."""
        for plug_in in self.finishing.get(call.served.resource.plural, ()):
            plug_in(call, obj, old)

    def known_fields(
        self, call: WriteRequest, obj: Object, *, defaults: bool = True
    ) -> tuple[str, ...]:
        """Remove unknown fields, and set `defaults`, except of an applied object.

        Return warnings. Raises ApiError.
        """
        served, resource = call.served, call.served.resource
        obj["apiVersion"], obj["kind"] = served.storage_api_version, resource.kind
        metadata = obj["metadata"]
        unknown = rules.prune_metadata(metadata, applied=not defaults)
        mistyped = rules.types(metadata)
        if mistyped:
            raise _undecodable(call, mistyped)
        if defaults:
            nulls = call.applied and not served.builtin
            fields = served.compiled.prepare(obj, nulls=nulls)
        else:
            fields = served.compiled.prune(obj)
        # Kubernetes has a parser for its own kinds, which reports them in the order of the text.
        unknown += fields if served.builtin else sorted(fields)
        if unknown and call.options.validation == "Strict" and not defaults:
            named = unknown[:_MAX_PROBLEMS]
            undeclared = "; ".join(f".{field}: field not declared in schema" for field in named)
            raise _undecodable(call, f"failed to create typed patch object: {undeclared}")
        problems = (*call.duplicates, *(f'unknown field "{field}"' for field in unknown))
        if served.builtin and not call.is_yaml:
            problems = problems[len(call.duplicates) :] + call.duplicates
        problems = problems[:_MAX_PROBLEMS]
        if problems and call.options.validation == "Strict":
            raise _undecodable(call, errors.strict_decoding(problems))
        return problems if call.options.validation == "Warn" else ()

    def _namespace(self, call: WriteRequest) -> None:
        """Check that the namespace exists and is not being deleted. Raises ApiError."""
        if not call.served.resource.namespaced:
            return
        owner = self._store.latest(NAMESPACES_PREFIX + call.namespace)
        if owner is None:
            raise errors.not_found_error("namespaces", "", call.namespace)
        if owner.value["metadata"].get("deletionTimestamp"):
            resource, name = call.served.resource, call.name
            message = (
                f'{resource.plural} "{name}" is forbidden: unable to create new content in '
                f"namespace {call.namespace} because it is being terminated"
            )
            cause = Cause(
                "NamespaceTerminating",
                f"namespace {call.namespace} is being terminated",
                "metadata.namespace",
            )
            raise StatusError(403, "Forbidden", message, kind=resource.plural, causes=[cause])


def check_new_object(served: ServedResource, obj: Object) -> tuple[list[str], list[Cause]]:
    """Prune an object and set its defaults in place, as a create does.

    Return the paths of unknown fields, and the violations. Its namespace need not exist.
    """
    metadata = obj["metadata"]
    unknown = rules.prune_metadata(metadata)
    mistyped = rules.types(metadata)
    if mistyped:
        return unknown, [Cause("FieldValueTypeInvalid", mistyped, "metadata")]
    unknown += served.compiled.prepare(obj)
    with contextlib.suppress(*_MALFORMED):
        served.complete(obj)
    call = WriteRequest(served, metadata.get("namespace", ""), metadata.get("name", ""))
    try:
        _validate(call, obj, None)
    except StatusError as error:
        return unknown, list(error.causes) or [Cause(error.reason, str(error), "")]
    return unknown, []


def deletion_blocked(served: ServedResource, obj: Object) -> bool:
    """Return whether finalizers or a grace period delay the deletion."""
    if obj["metadata"].get("finalizers"):
        return True
    if served.resource.plural == "namespaces" and not served.resource.group:
        return bool((obj.get("spec") or {}).get("finalizers"))
    return bool(obj["metadata"].get("deletionGracePeriodSeconds"))


def check_location(call: WriteRequest, metadata: Object) -> None:
    """Check name and namespace of the object against the request. Raises ApiError 400."""
    if call.name and metadata.get("name", call.name) != call.name:
        message = (
            f"the name of the object ({metadata['name']}) does not match the name on the "
            f"URL ({call.name})"
        )
        raise errors.bad_request(message)
    if not call.served.resource.namespaced:
        metadata.pop("namespace", None)
        return
    if not metadata.get("namespace"):
        metadata["namespace"] = call.namespace
    if metadata["namespace"] != call.namespace:
        message = (
            "the namespace of the provided object does not match the namespace sent on the request"
        )
        raise errors.bad_request(message)


_GO_TYPES = {
    "integer": "int32",
    "boolean": "bool",
    "array": "[]interface {}",
    "object": "map[string]interface {}",
}
_IN_BODY = re.compile(r": (\S+) in body should (be|match|have)")


def _as_builtin(call: WriteRequest, cause: Cause) -> Cause:
    """Return a violation in the wording for built-in kinds. Raises ApiError 400 for wrong types."""
    if cause.reason != "FieldValueTypeInvalid":
        return Cause(cause.reason, _IN_BODY.sub(r": must \2", cause.message), cause.field)
    # The last phrase: names of fields stand before it.
    expected, _, actual = cause.message.rpartition("must be of type ")[2].partition(': "')
    if expected == "byte":
        raise _undecodable(call, "illegal base64 data at input byte 0")
    actual = actual.removesuffix('"')
    name = {"integer": "number", "boolean": "bool"}.get(actual, actual)
    kind = _GO_TYPES.get(expected, expected)
    field = f"{call.served.resource.kind}.{cause.field}"
    raise _undecodable(
        call, f"json: cannot unmarshal {name} into Go struct field {field} of type {kind}"
    )


def _undecodable(call: WriteRequest, why: str) -> StatusError:
    """Build the error for an object that is not of its type: 422 for a patch, else 400."""
    if call.patched:
        cause = Cause("FieldValueInvalid", f"Invalid value: {why}", "patch")
        return errors.invalid_error("", "", "", [cause])
    return errors.undecodable(call.served.resource, why)


def _validate(call: WriteRequest, obj: Object, old: Object | None) -> None:
    """Raise ApiError for an invalid object."""
    served = call.served
    causes = list(rules.check_metadata(served, obj["metadata"], old and old["metadata"]))
    structural = served.compiled.validate(obj, old, blocked=bool(causes))
    if served.builtin:
        structural = [_as_builtin(call, cause) for cause in structural]
    causes += structural
    if not call.checked and (served.builtin or not structural):
        try:
            causes += call.check(obj, old)
        except _MALFORMED:
            if not causes:
                raise
    if causes:
        resource = served.resource
        name = str(obj["metadata"].get("name", ""))
        raise errors.invalid_error(resource.kind, resource.group, name, causes)
