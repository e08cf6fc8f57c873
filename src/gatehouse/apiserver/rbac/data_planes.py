"""Admission check for Deployments and DaemonSets of data planes.

The one-machine node runs them as processes of its own user, which is root in most installations.
A right to write Deployments in one namespace must therefore not be enough to write these.
"""

from __future__ import annotations

from gatehouse.apiserver.errors import ApiError
from gatehouse.apiserver.objects.admission import Admission
from gatehouse.apiserver.objects.write_request import WriteRequest
from gatehouse.apiserver.rbac.authorizer import MASTERS, Authorizer
from gatehouse.apiserver.rbac.coverage import covers
from gatehouse.apiserver.rbac.defaults import CONTROLLER
from gatehouse.apiserver.rbac.rules import EVERYTHING, Object, User

LABEL = ("app.kubernetes.io/managed-by", "gatehouse")
"""Label of data planes. The node runs no workload without it."""

PLURALS = ("deployments", "daemonsets")

_HARMLESS = ("status", "scale")
"""Subresources whose writes change neither the Pod template nor the metadata."""


def register_check(authorizer: Authorizer, admission: Admission) -> None:
    """Check every write to the kinds that the node runs."""

    def check(call: WriteRequest, obj: Object, old: Object | None) -> None:
        check_write(authorizer, call, obj, old)

    for plural in PLURALS:
        admission.finishing.setdefault(plural, []).append(check)


def check_write(
    authorizer: Authorizer, call: WriteRequest, obj: Object, old: Object | None
) -> None:
    """Raise ApiError 403 if the user may not write ``obj``, which replaces ``old``.

    Only the controller and cluster administrators may write an object that has or had the label.
    """
    if call.subresource in _HARMLESS or not (_is_labelled(obj) or _is_labelled(old)):
        return
    if not _is_trusted(authorizer, call.user):
        raise _forbidden(call, obj)


def _is_labelled(obj: Object | None) -> bool:
    labels = ((obj or {}).get("metadata") or {}).get("labels") or {}
    return bool(labels.get(LABEL[0]) == LABEL[1])


def _is_trusted(authorizer: Authorizer, user: User) -> bool:
    if user.name == CONTROLLER or MASTERS in user.groups:
        return True
    # Without a namespace only ClusterRoleBindings count: cluster-admin bound by a RoleBinding
    # grants nothing outside of its namespace.
    return covers(authorizer.rules_for(user, ""), EVERYTHING)


def _forbidden(call: WriteRequest, obj: Object) -> ApiError:
    resource, name = call.served.resource, obj["metadata"].get("name", "")
    message = (
        f'{resource.plural}.{resource.group} "{name}" is forbidden: '
        f"metadata.labels[{LABEL[0]}]: {LABEL[1]!r} is reserved for data planes, which only the "
        "Gatehouse controller and cluster administrators may create or change"
    )
    return ApiError(
        403, "Forbidden", message, kind=resource.plural, group=resource.group, name=name
    )
