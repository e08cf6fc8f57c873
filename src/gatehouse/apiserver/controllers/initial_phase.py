"""Initial status of new namespaces, Pods and volume claims, which only the server may set."""

from __future__ import annotations

from gatehouse.apis.objects import Object
from gatehouse.apiserver.objects.admission import Admission
from gatehouse.apiserver.objects.write_request import WriteRequest


def begin(admission: Admission) -> None:
    """Set the initial phase at creation: Active for namespaces, Pending for the others."""
    admission.mutating.setdefault("namespaces", []).append(_namespace)
    admission.mutating.setdefault("pods", []).append(_pod)
    admission.mutating.setdefault("persistentvolumeclaims", []).append(_volume_claim)


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


def _volume_claim(_: WriteRequest, obj: Object, old: Object | None) -> None:
    if old is None:
        obj["status"] = {"phase": "Pending"}
