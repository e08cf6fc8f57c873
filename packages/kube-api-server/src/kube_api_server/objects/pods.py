"""Facts about Pods that several parts of the API server need."""

from __future__ import annotations

from kube_base.types.objects import Object


def is_ready_pod(pod: Object) -> bool:
    """Return whether the Pod's condition `Ready` is True."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
