"""Permissions on signers, whose certificates and trust bundles others trust.

Everybody trusts the bundle of a signer for that signer's certificates. Its writer therefore needs
the verb `attest` on the signer, in addition to the right to write the object. Approval of a request
needs `approve`, and signing `sign`.
"""

from __future__ import annotations

from kube_api_server.errors import forbidden_error
from kube_api_server.rbac.authorizer import Authorizer
from kube_api_server.rbac.escalation import only_unprivileged_changes
from kube_api_server.rbac.rules import Attributes, RbacUser
from kube_base.types.objects import Object

SIGNING_GROUP, TRUST_BUNDLES = "certificates.k8s.io", "clustertrustbundles"


def may_use_signer(authorizer: Authorizer, user: RbacUser, verb: str, signer: str) -> bool:
    """Return whether a user has a verb on a signer, or on all signers of its domain."""
    names = (signer, signer.split("/")[0] + "/*")
    return any(
        authorizer.authorize(user, Attributes(verb, SIGNING_GROUP, "signers", name=name))[0]
        for name in names
    )


def check_attestation(
    authorizer: Authorizer, user: RbacUser, obj: Object, old: Object | None = None
) -> None:
    """Check that `user` may write the bundle of its signer. Raises StatusError 403."""
    signer = (obj.get("spec") or {}).get("signerName") or ""
    if not signer or (old is not None and only_unprivileged_changes(obj, old)):
        return
    if not may_use_signer(authorizer, user, "attest", signer):
        why = f'user not permitted to attest for signerName "{signer}"'
        name = obj["metadata"].get("name", "")
        raise forbidden_error(TRUST_BUNDLES, SIGNING_GROUP, name, why)
