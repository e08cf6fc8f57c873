"""Metadata that a write of a status may also change."""

from __future__ import annotations

from kube_api_server.objects.served_resource import ServedResource

_CHANGEABLE = ("annotations", "finalizers", "labels", "ownerReferences")
_UNCHANGED = {
    "apiservices": _CHANGEABLE,
    "deployments": ("labels",),
    "pods": ("ownerReferences",),
    "validatingadmissionpolicies": _CHANGEABLE,
}
"""Fields that such a write does not change, by built-in kind, as in kube-apiserver."""


def written_with_status(served: ServedResource) -> tuple[str, ...]:
    """Return the names of the fields of metadata that a write of the status may change."""
    if not served.builtin:
        return ()
    unchanged = _UNCHANGED.get(served.resource.plural, ())
    return tuple(name for name in _CHANGEABLE if name not in unchanged)
