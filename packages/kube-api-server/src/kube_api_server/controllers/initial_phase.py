"""Fields of new objects that only the server may set.

They are initial phases, who requests signing, and the selectors of Jobs.
"""

from __future__ import annotations

from kube_api_server.builtin.jobs import select_own_pods
from kube_api_server.objects.admission import Admission
from kube_api_server.objects.write_request import WriteRequest
from kube_base.types.objects import Object

_REQUESTER = ("username", "groups", "uid", "extra")


def begin(admission: Admission) -> None:
    """Set the fields at creation. The phase is Active for namespaces, Pending for the others."""
    admission.mutating.setdefault("namespaces", []).append(_namespace)
    admission.mutating.setdefault("pods", []).append(_pod)
    admission.mutating.setdefault("jobs", []).append(_job)
    admission.mutating.setdefault("persistentvolumeclaims", []).append(_volume_claim)
    admission.mutating.setdefault("certificatesigningrequests", []).append(_signing_request)


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


def _job(call: WriteRequest, obj: Object, old: Object | None) -> None:
    if old is None and call.served.resource.group == "batch":
        select_own_pods(obj)


def _volume_claim(_: WriteRequest, obj: Object, old: Object | None) -> None:
    if old is None:
        obj["status"] = {"phase": "Pending"}


def _signing_request(call: WriteRequest, obj: Object, old: Object | None) -> None:
    """Set the requester, whom a signer trusts."""
    if old is None:
        spec = {key: value for key, value in obj["spec"].items() if key not in _REQUESTER}
        obj["spec"] = {**spec, **call.user.user_info()}
