"""Initial status of new namespaces and Pods, which only the server may set."""

from __future__ import annotations

from gatehouse.apis.objects import Object
from gatehouse.apiserver.objects.admission import Admission
from gatehouse.apiserver.objects.write_request import WriteRequest


def begin(admission: Admission) -> None:
    """Set the initial phase at creation: Active for namespaces, Pending for Pods."""
    admission.mutating.setdefault("namespaces", []).append(_namespace)
    admission.mutating.setdefault("pods", []).append(_pod)


def _namespace(_: WriteRequest, obj: Object, old: Object | None) -> None:
    if old is None:
        finalizers = list((obj.get("spec") or {}).get("finalizers") or ())
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        obj["spec"] = {"finalizers": finalizers}
        obj["status"] = {"phase": "Active"}


def _pod(_: WriteRequest, obj: Object, old: Object | None) -> None:
    if old is None:
        obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
