"""Default roles and bindings of a new server, and their update at start.

They have the names and meaning of Kubernetes (Default Roles and Role Bindings), limited to
resources that this server serves. An extension adds its own.
"""

from __future__ import annotations

import copy

from kube_api_server.rbac.authorizer import MASTERS
from kube_api_server.rbac.coverage import compact, uncovered_atoms
from kube_api_server.rbac.role_objects import (
    AUTOUPDATE,
    READ_AND_WRITE_VERBS,
    READ_VERBS,
    WRITE_VERBS,
    aggregated_cluster_role,
    and_subresource,
    cluster_role,
    cluster_role_binding,
    resource_rule,
    url_rule,
)
from kube_api_server.rbac.rules import EVERYTHING, RBAC_GROUP, PolicyRule, values
from kube_api_server.rbac.validation import with_defaults
from kube_base.types.objects import Object

_APPS = "apps"
_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_AUTOSCALING = "autoscaling"
_BATCH = "batch"
_CERTIFICATES = "certificates.k8s.io"
_COORDINATION = "coordination.k8s.io"
_CORE = ""
_DISCOVERY = "discovery.k8s.io"
_EVENTS = "events.k8s.io"
_NETWORKING = "networking.k8s.io"
_POLICY = "policy"
_RESOURCE = "resource.k8s.io"
_CLAIMS = "resourceclaims resourceclaimtemplates"

_HEALTH = "/livez /readyz /healthz /version /version/"
_DOCUMENTS = "/openapi /openapi/* /api /api/* /apis /apis/*"
_ISSUER = (
    "/.well-known/openid-configuration /.well-known/openid-configuration/ "
    "/openid/v1/jwks /openid/v1/jwks/"
)

_VIEW = (
    resource_rule(
        READ_VERBS,
        _CORE,
        and_subresource(
            "namespaces persistentvolumeclaims pods replicationcontrollers resourcequotas services",
            "status",
        ),
    ),
    resource_rule(READ_VERBS, _CORE, "replicationcontrollers/scale"),
    resource_rule(READ_VERBS, _CORE, "configmaps endpoints events pods/log serviceaccounts"),
    resource_rule(READ_VERBS, _EVENTS, "events"),
    resource_rule(READ_VERBS, _DISCOVERY, "endpointslices"),
    resource_rule(
        READ_VERBS, _APPS, and_subresource("daemonsets deployments replicasets", "status")
    ),
    resource_rule(READ_VERBS, _APPS, "deployments/scale replicasets/scale"),
    resource_rule(READ_VERBS, _AUTOSCALING, and_subresource("horizontalpodautoscalers", "status")),
    resource_rule(READ_VERBS, _POLICY, and_subresource("poddisruptionbudgets", "status")),
    resource_rule(READ_VERBS, _NETWORKING, "networkpolicies"),
    resource_rule(READ_VERBS, _NETWORKING, and_subresource("ingresses", "status")),
    resource_rule(READ_VERBS, _BATCH, and_subresource("cronjobs jobs", "status")),
    resource_rule(READ_VERBS, _RESOURCE, f"{_CLAIMS} resourceclaims/status"),
)
"""Excludes Secrets: reading a token there gives the rights of its owner."""

_EDIT = (
    resource_rule(READ_VERBS, _CORE, "secrets"),
    resource_rule(WRITE_VERBS, _CORE, "configmaps events pods secrets serviceaccounts services"),
    resource_rule(
        WRITE_VERBS,
        _CORE,
        "persistentvolumeclaims replicationcontrollers replicationcontrollers/scale",
    ),
    resource_rule("create", _CORE, "pods/eviction serviceaccounts/token"),
    resource_rule("impersonate", _CORE, "serviceaccounts"),
    resource_rule(
        WRITE_VERBS, _APPS, "daemonsets deployments deployments/scale replicasets replicasets/scale"
    ),
    resource_rule(WRITE_VERBS, _AUTOSCALING, "horizontalpodautoscalers"),
    resource_rule(WRITE_VERBS, _POLICY, "poddisruptionbudgets"),
    resource_rule(WRITE_VERBS, _NETWORKING, "ingresses networkpolicies"),
    resource_rule(WRITE_VERBS, _BATCH, "cronjobs jobs"),
    resource_rule(WRITE_VERBS, _RESOURCE, _CLAIMS),
    resource_rule(READ_AND_WRITE_VERBS, _COORDINATION, "leases"),
)
"""Excludes Endpoints and EndpointSlices: writing them gives access to Pods of other namespaces."""

_ADMIN = (
    resource_rule("create", _AUTHORIZATION, "localsubjectaccessreviews"),
    resource_rule(READ_AND_WRITE_VERBS, RBAC_GROUP, "roles rolebindings"),
)

_ROLES: dict[str, tuple[PolicyRule, ...]] = {
    "cluster-admin": EVERYTHING,
    "system:discovery": (url_rule(f"{_HEALTH} {_DOCUMENTS}"),),
    "system:public-info-viewer": (url_rule(_HEALTH),),
    "system:service-account-issuer-discovery": (url_rule(_ISSUER),),
    "system:basic-user": (
        resource_rule("create", _AUTHORIZATION, "selfsubjectaccessreviews selfsubjectrulesreviews"),
        resource_rule("create", _AUTHENTICATION, "selfsubjectreviews"),
    ),
    "system:auth-delegator": (
        resource_rule("create", _AUTHENTICATION, "tokenreviews"),
        resource_rule("create", _AUTHORIZATION, "subjectaccessreviews"),
    ),
    "system:cluster-trust-bundle-discovery": (
        resource_rule(READ_VERBS, _CERTIFICATES, "clustertrustbundles"),
    ),
}

_AGGREGATED: dict[str, tuple[tuple[PolicyRule, ...], str]] = {
    "admin": (_ADMIN, ""),
    "edit": (_EDIT, "admin"),
    "view": (_VIEW, "edit"),
}
"""By name: the rules that the role adds, and the role that collects them."""

_BINDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "cluster-admin": (("Group", MASTERS),),
    "system:discovery": (("Group", "system:authenticated"),),
    "system:basic-user": (("Group", "system:authenticated"),),
    "system:public-info-viewer": (
        ("Group", "system:authenticated"),
        ("Group", "system:unauthenticated"),
    ),
    "system:service-account-issuer-discovery": (("Group", "system:serviceaccounts"),),
    "system:cluster-trust-bundle-discovery": (("Group", "system:serviceaccounts"),),
}
"""Subjects by name of the binding, which is also the name of the ClusterRole."""


def objects() -> list[Object]:
    """Return the default objects, roles first. Aggregated roles have no rules yet."""
    roles = [cluster_role(name, rules) for name, rules in _ROLES.items()]
    for name, (rules, gatherer) in _AGGREGATED.items():
        roles.append(aggregated_cluster_role(name, aggregate_to=gatherer))
        roles.append(cluster_role(f"system:aggregate-to-{name}", rules, aggregate_to=name))
    bindings = [cluster_role_binding(name, *subjects) for name, subjects in _BINDINGS.items()]
    return copy.deepcopy(roles + bindings)


def reconcile_default(current: Object | None, desired: Object) -> Object | None:
    """Return a default object as it must be written at start; None if nothing changes.

    Additions of an administrator stay. Missing items are restored, unless the object has
    `autoupdate: "false"`. If the roleRef differs, `desired` is returned unchanged: a roleRef is
    immutable, so the caller must delete the old binding first.
    """
    if current is None:
        return copy.deepcopy(desired)
    kind = desired["kind"]
    before = with_defaults(kind, copy.deepcopy(current))
    if (before["metadata"].get("annotations") or {}).get(AUTOUPDATE) == "false":
        return None
    if before.get("roleRef") != desired.get("roleRef"):
        return copy.deepcopy(desired)
    after = {**before, "metadata": {**before["metadata"]}}
    for field in ("labels", "annotations"):
        own = before["metadata"].get(field) or {}
        after["metadata"][field] = {**desired["metadata"].get(field, {}), **own}
    if kind.endswith("Binding"):
        _add_missing(after, desired, "subjects")
    else:
        _reconcile_rules(after, desired)
    return None if after == before else after


def _reconcile_rules(after: Object, desired: Object) -> None:
    own, needed = values(after, "rules"), values(desired, "rules")
    if own != needed and (missing := uncovered_atoms(own, needed)):
        after["rules"] = own + compact(missing)
    if "aggregationRule" not in desired:
        after.pop("aggregationRule", None)
        return
    rule = {**(after.get("aggregationRule") or {})}
    _add_missing(rule, desired["aggregationRule"], "clusterRoleSelectors")
    after["aggregationRule"] = rule


def _add_missing(after: Object, desired: Object, field: str) -> None:
    own = values(after, field)
    missing = [copy.deepcopy(one) for one in values(desired, field) if one not in own]
    if missing:
        after[field] = own + missing
