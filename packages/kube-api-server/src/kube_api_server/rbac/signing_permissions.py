"""Approval and signing of CertificateSigningRequests: who may do which, and what each may change.

https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/
"""

from __future__ import annotations

from cryptography.x509.oid import NameOID

from kube_api_server.builtin.signing_requests import (
    APPROVED,
    DECISIONS,
    DENIED,
    FAILED,
    signing_request,
)
from kube_api_server.causes import forbidden_cause
from kube_api_server.errors import forbidden_error, invalid_error
from kube_api_server.objects import timestamps
from kube_api_server.objects.admission import Admission
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.rbac.authorizer import MASTERS, Authorizer
from kube_api_server.rbac.signers import SIGNING_GROUP, may_use_signer
from kube_base.types.objects import Object

_PLURAL, _KIND = "certificatesigningrequests", "CertificateSigningRequest"
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
_CONDITIONS = "status.conditions"


def register_signing_checks(authorizer: Authorizer, admission: Admission) -> None:
    """Check and complete every write of a request."""

    def check(call: WriteRequest, obj: Object, old: Object | None) -> None:
        if old is None:
            _check_subject(obj)
            return
        _check_permission(authorizer, call, obj, old)
        _check_change(call, obj, old)

    admission.mutating.setdefault(_PLURAL, []).append(_complete)
    admission.finishing.setdefault(_PLURAL, []).append(check)


def _complete(call: WriteRequest, obj: Object, old: Object | None) -> None:
    """Keep what the subresource cannot change, and set the times of conditions."""
    if old is None or call.subresource not in ("status", "approval"):
        return
    before = old.get("status") or {}
    if call.subresource == "approval":
        status = {**(obj.get("status") or {})}
        status.pop("certificate", None)
        certificate = {key: before[key] for key in ("certificate",) if key in before}
        obj["status"] = {**status, **certificate}
    else:
        _keep_decisions(obj.get("status") or {}, before)
    now = timestamps.now()
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            condition["lastTransitionTime"] = next(
                (
                    earlier["lastTransitionTime"]
                    for earlier in before.get("conditions") or ()
                    if _state(earlier) == _state(condition) and earlier.get("lastTransitionTime")
                ),
                now,
            )


def _keep_decisions(status: Object, before: Object) -> None:
    """Restore Approved and Denied conditions, unless their number changes, which is an error."""
    for kind in DECISIONS:
        earlier = _of_type(before, kind)
        if len(_of_type(status, kind)) == len(earlier):
            decisions = iter(earlier)
            status["conditions"] = [
                next(decisions) if condition.get("type") == kind else condition
                for condition in status.get("conditions") or ()
            ]


def _state(condition: Object) -> tuple[object, object]:
    return condition.get("type"), condition.get("status")


def _of_type(status: Object, kind: str) -> list[Object]:
    return [one for one in status.get("conditions") or () if one.get("type") == kind]


def _check_subject(obj: Object) -> None:
    """Refuse a certificate of a cluster administrator. Raises StatusError."""
    spec = obj["spec"]
    if spec.get("signerName") != _CLIENT_SIGNER:
        return
    subject = signing_request(spec["request"]).subject
    names = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    if any(name.value == MASTERS for name in names):
        why = f"use of {_CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
        raise forbidden_error(_PLURAL, SIGNING_GROUP, obj["metadata"].get("name", ""), why)


def _check_permission(authorizer: Authorizer, call: WriteRequest, obj: Object, old: Object) -> None:
    """Check that the user may approve for the signer, or sign in its name. Raises StatusError."""
    status, before = obj.get("status") or {}, old.get("status") or {}
    fields = ("certificate", "conditions")
    if call.subresource == "approval":
        verb = "approve"
    elif call.subresource == "status" and any(status.get(f) != before.get(f) for f in fields):
        verb = "sign"
    else:
        return
    signer = old["spec"].get("signerName", "")
    if may_use_signer(authorizer, call.user, verb, signer):
        return
    why = f'user not permitted to {verb} requests with signerName "{signer}"'
    raise forbidden_error(_PLURAL, SIGNING_GROUP, call.name, why)


def _check_change(call: WriteRequest, obj: Object, old: Object) -> None:
    """Check that conditions stay, and decisions and certificates too. Raises StatusError 422."""
    status, before = obj.get("status") or {}, old.get("status") or {}
    causes = []
    for kind in (APPROVED, DENIED, FAILED):
        earlier, later = _of_type(before, kind), _of_type(status, kind)
        verb = ""
        if len(later) < len(earlier):
            verb = "remove"
        elif kind in DECISIONS and call.subresource != "approval" and later != earlier:
            verb = "add" if len(later) > len(earlier) else "modify"
        if verb:
            why = f'updates may not {verb} a condition of type "{kind}"'
            causes.append(forbidden_cause(_CONDITIONS, why))
    certificate = before.get("certificate")
    if certificate and status.get("certificate") != certificate:
        why = "updates may not modify existing certificate content"
        causes.append(forbidden_cause("status.certificate", why))
    if causes:
        raise invalid_error(_KIND, SIGNING_GROUP, call.name, causes)
