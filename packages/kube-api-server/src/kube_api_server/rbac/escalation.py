"""Prevention of privilege escalation by writes to roles and bindings.

A writer must hold all granted permissions, or have the verb `escalate` or `bind`. Otherwise a user
with write access to RoleBindings could become administrator.
"""

from __future__ import annotations

from kube_api_server.errors import StatusError, bad_request, not_found_error
from kube_api_server.rbac.authorizer import BINDINGS, MASTERS, ROLES, Authorizer
from kube_api_server.rbac.coverage import escalation_message, rules_cover, uncovered_atoms
from kube_api_server.rbac.rules import (
    EVERYTHING,
    RBAC_GROUP,
    Attributes,
    PolicyRule,
    RbacUser,
    values,
)
from kube_base.types.objects import Object

_PLURALS = {kind: f"{kind.lower()}s" for kind in ROLES | BINDINGS}

_UNPRIVILEGED_METADATA = ("ownerReferences", "finalizers", "selfLink", "managedFields")
"""Metadata that the garbage collector changes and that grants nothing."""


def check_escalation(
    authorizer: Authorizer, user: RbacUser, kind: str, obj: Object, old: Object | None = None
) -> None:
    """Check that `user` may create `obj`, or write it in place of `old`.

    `obj` must have its defaults and its namespace. Raises StatusError 403 or 404.
    """
    if MASTERS in user.groups or (old is not None and only_unprivileged_changes(obj, old)):
        return
    if kind in ROLES:
        _check_role(authorizer, user, kind, obj, old)
    else:
        _check_binding(authorizer, user, kind, obj)


def _check_role(
    authorizer: Authorizer, user: RbacUser, kind: str, obj: Object, old: Object | None
) -> None:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    # The URL of a create has no name, so `escalate` on named roles allows only their update.
    name = metadata["name"] if old is not None else ""
    escalate = Attributes("escalate", RBAC_GROUP, _PLURALS[kind], namespace=namespace, name=name)
    if authorizer.authorize(user, escalate)[0]:
        return
    owned = authorizer.rules_for(user, namespace)
    _check_covered(user, kind, obj, owned, values(obj, "rules"))
    # Selectors also match roles that get their labels later, so they count as all permissions.
    if _aggregates(obj) or (old is not None and _aggregates(old)):
        message = "must have cluster-admin privileges to use the aggregationRule"
        if not rules_cover(owned, EVERYTHING):
            raise _forbidden(kind, obj, message)


def _check_binding(authorizer: Authorizer, user: RbacUser, kind: str, obj: Object) -> None:
    namespace, ref = obj["metadata"].get("namespace", ""), obj.get("roleRef") or {}
    role_kind, name = ref.get("kind", ""), ref.get("name", "")
    if role_kind not in ROLES or (role_kind == "Role" and not namespace):
        raise bad_request(f'unsupported role reference kind: "{role_kind}"')
    group, plural = ref.get("apiGroup", ""), _PLURALS[role_kind]
    bind = Attributes("bind", group, plural, namespace=namespace, name=name)
    if authorizer.authorize(user, bind)[0]:
        return
    requested = authorizer.rules_of(ref, namespace)
    if requested is None:
        raise not_found_error(plural, RBAC_GROUP, name)
    _check_covered(user, kind, obj, authorizer.rules_for(user, namespace), requested)


def _check_covered(
    user: RbacUser, kind: str, obj: Object, owned: list[PolicyRule], requested: list[PolicyRule]
) -> None:
    missing = uncovered_atoms(owned, requested)
    if missing:
        raise _forbidden(kind, obj, escalation_message(user, missing))


def _forbidden(kind: str, obj: Object, why: str) -> StatusError:
    plural, name = _PLURALS[kind], obj["metadata"].get("name", "")
    named = f'{plural}.{RBAC_GROUP} "{name}"' if name else f"{plural}.{RBAC_GROUP}"
    message = f"{named} is forbidden: {why}"
    return StatusError(403, "Forbidden", message, kind=plural, group=RBAC_GROUP, name=name)


def _aggregates(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def only_unprivileged_changes(obj: Object, old: Object) -> bool:
    """Return whether a write changes only what the garbage collector does."""
    return _privileged_part(obj) == _privileged_part(old)


def _privileged_part(obj: Object) -> Object:
    metadata = {
        key: value for key, value in obj["metadata"].items() if key not in _UNPRIVILEGED_METADATA
    }
    return {**obj, "metadata": metadata}
