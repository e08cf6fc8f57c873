"""Metadata that a write of a status may also change."""

from __future__ import annotations

from gatehouse.apiserver.objects.served_resource import ServedResource

_CHANGEABLE = ("annotations", "finalizers", "labels", "ownerReferences")
_ONLY_STATUS = ("validatingadmissionpolicies",)
"""Built-in kinds of which such a write changes the status only, as of custom resources."""


def written_with_status(served: ServedResource) -> tuple[str, ...]:
    """Return the names of the fields of metadata that a write of the status may change."""
    plural = served.resource.plural
    if not served.builtin or plural in _ONLY_STATUS:
        return ()
    if plural == "deployments":
        return tuple(name for name in _CHANGEABLE if name != "labels")
    return _CHANGEABLE
