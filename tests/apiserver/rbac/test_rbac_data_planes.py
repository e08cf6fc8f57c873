"""Admission of writes to Deployments and DaemonSets of data planes."""

from __future__ import annotations

from typing import Any

import pytest

from gatehouse.apiserver_extension.data_plane_writes import check_data_plane_write
from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_api_server.errors import StatusError
from kube_api_server.identity.users import SYSTEM, User
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.write_request import WriteOptions, WriteRequest
from kube_api_server.rbac.authorizer import Authorizer
from kube_api_server.rbac.rules import EVERYTHING, RBAC_GROUP

Object = dict[str, Any]

TENANT = User("dev", groups=("system:authenticated",))
MARKED: Object = {
    "metadata": {"name": "x", "labels": {"app.kubernetes.io/managed-by": "gatehouse"}}
}
PLAIN: Object = {"metadata": {"name": "x", "labels": {"app.kubernetes.io/managed-by": "Helm"}}}


def call(user: User, plural: str = "deployments", subresource: str = "") -> WriteRequest:
    served = Registry(BUILTIN_KINDS).stored("apps", plural)
    assert served is not None
    options = WriteOptions(validation="Ignore", manager="gatehouse")
    return WriteRequest(served, "ns", "x", subresource, options, user)


def bound(kind: str, namespace: str) -> Authorizer:
    """Build an authorizer that grants cluster-admin to TENANT."""
    authorizer = Authorizer()
    authorizer.set("ClusterRole", "", "cluster-admin", {"rules": list(EVERYTHING)})
    reference = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"apiGroup": RBAC_GROUP, "kind": "User", "name": TENANT.name}]
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects}
    authorizer.set(kind, namespace, "b", binding)
    return authorizer


@pytest.mark.parametrize("plural", ["deployments", "daemonsets"])
@pytest.mark.parametrize(("obj", "old"), [(MARKED, None), (MARKED, PLAIN), (PLAIN, MARKED)])
def test_user_write_to_data_plane_is_forbidden(
    plural: str, obj: Object, old: Object | None
) -> None:
    with pytest.raises(StatusError) as result:
        check_data_plane_write(Authorizer(), call(TENANT, plural), obj, old)
    assert result.value.code == 403
    assert result.value.message.startswith(f'{plural}.apps "x" is forbidden: metadata.labels[')


def test_user_can_write_other_workloads_and_scale_data_planes() -> None:
    check_data_plane_write(Authorizer(), call(TENANT), PLAIN, None)
    check_data_plane_write(Authorizer(), call(TENANT), {"metadata": {"name": "x"}}, PLAIN)
    check_data_plane_write(Authorizer(), call(TENANT, subresource="scale"), MARKED, MARKED)
    check_data_plane_write(Authorizer(), call(TENANT, subresource="status"), MARKED, MARKED)


@pytest.mark.parametrize(
    "user", [User("system:gatehouse:controller"), User("u", groups=("system:masters",)), SYSTEM]
)
def test_controller_and_administrators_can_write_data_planes(user: User) -> None:
    check_data_plane_write(Authorizer(), call(user), MARKED, None)


def test_cluster_admin_in_one_namespace_cannot_write_data_planes() -> None:
    check_data_plane_write(bound("ClusterRoleBinding", ""), call(TENANT), MARKED, None)
    with pytest.raises(StatusError):
        check_data_plane_write(bound("RoleBinding", "ns"), call(TENANT), MARKED, None)
