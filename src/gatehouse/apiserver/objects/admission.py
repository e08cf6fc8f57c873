"""Admission of writes: pruning, defaults, validation, and plug-ins by kind."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

from gatehouse.apiserver import errors
from gatehouse.apiserver.errors import ApiError, Cause
from gatehouse.apiserver.objects import metadata as rules
from gatehouse.apiserver.objects.registry import Registry
from gatehouse.apiserver.objects.served_resource import ServedResource
from gatehouse.apiserver.objects.write_request import WriteRequest
from gatehouse.apiserver.storage.store import Store

Object = dict[str, Any]
PlugIn = Callable[[WriteRequest, Object, "Object | None"], None]
"""Receives a new object and its former state. May change the new object or raise ApiError."""

Policy = Callable[[WriteRequest, "Object | None", "Object | None"], tuple[str, ...]]
"""Receives the object of a write (None for a deletion) and its former state.

Return warnings, or raise ApiError.
"""

NAMESPACES = "/core/namespaces/"
_MALFORMED = (TypeError, AttributeError, KeyError, ValueError)
"""Exceptions of code that reads a value of the wrong type."""


def _no_policy(_: WriteRequest, __: Object | None, ___: Object | None) -> tuple[str, ...]:
    return ()


class Admission:
    """Admission of writes to one store."""

    def __init__(self, registry: Registry, store: Store) -> None:
        self._registry, self._store = registry, store
        self.mutating: dict[str, list[PlugIn]] = {}
        """By plural name: called after defaults and before validation."""
        self.finishing: dict[str, list[PlugIn]] = {}
        """Called with valid objects, immediately before they are written."""
        self.policy: Policy = _no_policy
        """Called with every valid object and every deletion."""

    def prepare(self, call: WriteRequest, obj: Object, old: Object | None) -> tuple[str, ...]:
        """Prune `obj` and set its defaults, in place. Return warnings. Raises ApiError."""
        _check_location(call, obj["metadata"], old)
        if old is None:
            self._namespace(call)
        warnings = self.known_fields(call, obj)
        # An exception here means a wrong type, which validation reports.
        with contextlib.suppress(*_MALFORMED):
            call.served.complete(obj)
        return warnings

    def run_admission_policies(
        self, call: WriteRequest, obj: Object, old: Object | None
    ) -> tuple[str, ...]:
        """Mutate `obj` by plug-ins, validate it and apply policies.

        Return warnings. Raises ApiError.
        """
        served = call.served
        with contextlib.suppress(*_MALFORMED):
            for plug_in in self.mutating.get(served.resource.plural, ()):
                plug_in(call, obj, old)
        causes = list(rules.check(served, obj["metadata"]))
        structural = served.compiled.validate(obj, old, blocked=bool(causes))
        if served.builtin:
            structural = [_as_builtin(served, cause) for cause in structural]
        causes += structural
        if served.builtin or not structural:
            try:
                causes += served.check(obj, old)
            except _MALFORMED:
                if not causes:
                    raise
        if causes:
            resource = served.resource
            name = str(obj["metadata"].get("name", ""))
            raise errors.invalid(resource.kind, resource.group, name, causes)
        return self.policy(call, obj, old)

    def finish(self, call: WriteRequest, obj: Object, old: Object | None) -> None:
        """Call the plug-ins of an object that is about to be written. Raises ApiError."""
        for plug_in in self.finishing.get(call.served.resource.plural, ()):
            plug_in(call, obj, old)

    def known_fields(self, call: WriteRequest, obj: Object) -> tuple[str, ...]:
        """Remove unknown fields. Return warnings. Raises ApiError 400."""
        served, resource = call.served, call.served.resource
        obj["apiVersion"], obj["kind"] = served.storage_api_version, resource.kind
        metadata = obj["metadata"]
        unknown = rules.prune(metadata)
        mistyped = rules.types(metadata)
        if mistyped:
            raise _undecodable(served, mistyped)
        unknown += served.compiled.prepare(obj)
        if unknown and call.options.validation == "Strict":
            shown = ", ".join(f'unknown field "{field}"' for field in unknown)
            raise _undecodable(served, f"strict decoding error: {shown}")
        warnings = [served.warning] if served.warning else []
        if call.options.validation == "Warn":
            warnings += [f'unknown field "{field}"' for field in unknown]
        return tuple(warnings)

    def _namespace(self, call: WriteRequest) -> None:
        """Check that the namespace exists and is not being deleted. Raises ApiError."""
        if not call.served.resource.namespaced:
            return
        owner = self._store.latest(NAMESPACES + call.namespace)
        if owner is None:
            raise errors.not_found("namespaces", "", call.namespace)
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
            raise ApiError(403, "Forbidden", message, kind=resource.plural, causes=[cause])


def deletion_blocked(served: ServedResource, obj: Object) -> bool:
    """Return whether finalizers or a grace period delay the deletion."""
    if obj["metadata"].get("finalizers"):
        return True
    if served.resource.plural == "namespaces" and not served.resource.group:
        return bool((obj.get("spec") or {}).get("finalizers"))
    return bool(obj["metadata"].get("deletionGracePeriodSeconds"))


def _check_location(call: WriteRequest, metadata: Object, old: Object | None) -> None:
    """Check name and namespace of the object against the request. Raises ApiError 400."""
    if old is not None and metadata.get("name", call.name) != call.name:
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
_TYPED = re.compile(r'must be of type (\S+): "(.*)"$')


def _as_builtin(served: ServedResource, cause: Cause) -> Cause:
    """Return a violation in the wording for built-in kinds. Raises ApiError 400 for wrong types."""
    if cause.reason != "FieldValueTypeInvalid":
        return Cause(cause.reason, _IN_BODY.sub(r": must \2", cause.message), cause.field)
    found = _TYPED.search(cause.message)
    if found and found[1] == "byte":
        raise _undecodable(served, "illegal base64 data at input byte 0")
    wanted, given = (found[1], found[2]) if found else ("", "")
    name = {"integer": "number", "boolean": "bool"}.get(given, given)
    kind = _GO_TYPES.get(wanted, wanted)
    field = f"{served.resource.kind}.{cause.field}"
    raise _undecodable(
        served, f"json: cannot unmarshal {name} into Go struct field {field} of type {kind}"
    )


def _undecodable(served: ServedResource, why: str) -> ApiError:
    resource = served.resource
    return errors.bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
        f"{why}"
    )
