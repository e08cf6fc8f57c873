"""Admission check for the workloads of data planes, and for what their Pods mount.

The one-machine node runs them as processes of its own user, which is root in most installations.
A right to write these kinds in one namespace must therefore not be enough to write those of a data
plane. The check rests on the authenticated user: clients choose labels, owners and field managers.
"""

from __future__ import annotations

from gatehouse.apiserver_extension.roles import CONTROLLER_USER
from kube_api_server.errors import StatusError
from kube_api_server.extension import ExtendedServer
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.rbac.authorizer import MASTERS, Authorizer
from kube_api_server.rbac.coverage import rules_cover
from kube_api_server.rbac.rules import EVERYTHING, RbacUser
from kube_base.types.objects import Object

_LABEL = ("app.kubernetes.io/managed-by", "gatehouse")
"""Label of data planes. The node runs no workload without it."""

_PLURALS = ("deployments", "daemonsets", "configmaps", "secrets")
"""The kinds that the node runs, and those that it mounts: certificates, licences and tokens."""

_HARMLESS = ("status", "scale")
"""Subresources whose writes change neither the Pod template nor the metadata."""


def register_data_plane_check(server: ExtendedServer) -> None:
    """Check every write to the kinds that the node runs or mounts."""

    def check(call: WriteRequest, obj: Object, old: Object | None) -> None:
        check_data_plane_write(server.authorizer, call, obj, old)

    for plural in _PLURALS:
        server.check_writes(plural, check)


def check_data_plane_write(
    authorizer: Authorizer, call: WriteRequest, obj: Object, old: Object | None
) -> None:
    """Raise ApiError 403 if the user may not write ``obj``, which replaces ``old``.

    Only the controller and cluster administrators may write an object that has or had the label.
    """
    if call.subresource in _HARMLESS or not (_is_labelled(obj) or _is_labelled(old)):
        return
    if not is_trusted(authorizer, call.user):
        raise _forbidden(call, obj)


def _is_labelled(obj: Object | None) -> bool:
    labels = ((obj or {}).get("metadata") or {}).get("labels") or {}
    return bool(labels.get(_LABEL[0]) == _LABEL[1])


def is_trusted(authorizer: Authorizer, user: RbacUser) -> bool:
    """Return whether a user is the controller or a cluster administrator."""
    if user.name == CONTROLLER_USER or MASTERS in user.groups:
        return True
    # Without a namespace only ClusterRoleBindings count: cluster-admin bound by a RoleBinding
    # grants nothing outside of its namespace.
    return rules_cover(authorizer.rules_for(user, ""), EVERYTHING)


def _forbidden(call: WriteRequest, obj: Object) -> StatusError:
    resource, name = call.served.resource, obj["metadata"].get("name", "")
    qualified = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    message = (
        f'{qualified} "{name}" is forbidden: '
        f"metadata.labels[{_LABEL[0]}]: {_LABEL[1]!r} is reserved for data planes, which only the "
        "Gatehouse controller and cluster administrators may create or change"
    )
    return StatusError(
        403, "Forbidden", message, kind=resource.plural, group=resource.group, name=name
    )
