"""Permission to write a ClusterTrustBundle of a signer.

Everybody trusts the bundle of a signer for that signer's certificates. Its writer therefore needs
the verb `attest` on the signer, in addition to the right to write the object.
"""

from __future__ import annotations

from gatehouse.apis.objects import Object
from gatehouse.apiserver.errors import StatusError
from gatehouse.apiserver.rbac.authorizer import Authorizer
from gatehouse.apiserver.rbac.escalation import only_unprivileged_changes
from gatehouse.apiserver.rbac.rules import Attributes, RbacUser

_GROUP, TRUST_BUNDLES = "certificates.k8s.io", "clustertrustbundles"


def check_attestation(
    authorizer: Authorizer, user: RbacUser, obj: Object, old: Object | None = None
) -> None:
    """Check that `user` may write the bundle of its signer. Raises StatusError 403."""
    signer = (obj.get("spec") or {}).get("signerName") or ""
    if not signer or (old is not None and only_unprivileged_changes(obj, old)):
        return
    for name in (signer, signer.split("/")[0] + "/*"):
        if authorizer.authorize(user, Attributes("attest", _GROUP, "signers", name=name))[0]:
            return
    name = obj["metadata"].get("name", "")
    message = (
        f'{TRUST_BUNDLES}.{_GROUP} "{name}" is forbidden: user not permitted to attest for '
        f'signerName "{signer}"'
    )
    raise StatusError(403, "Forbidden", message, kind=TRUST_BUNDLES, group=_GROUP, name=name)
