"""Default roles and bindings of a new server, and their update at start.

The general ones have the names and meaning of Kubernetes (Default Roles and Role Bindings), limited
to resources that this server serves. Roles of Gatehouse's own components contain the permissions
that their code uses.
"""

from __future__ import annotations

import copy
import json
from importlib import resources

from gatehouse.apis.objects import Object
from gatehouse.apiserver.rbac.authorizer import MASTERS
from gatehouse.apiserver.rbac.coverage import compact, uncovered_atoms
from gatehouse.apiserver.rbac.rules import ALL, EVERYTHING, RBAC_GROUP, PolicyRule, values
from gatehouse.apiserver.rbac.validation import with_defaults

CONTROLLER_USER = "system:gatehouse:controller"
NODE_USER = "system:gatehouse:node"

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_AGGREGATE_TO = f"{RBAC_GROUP}/aggregate-to-"
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_ANNOTATIONS = {AUTOUPDATE: "true"}

_READ = "get list watch"
_FOLLOW = "list watch"
_WRITE = "create delete deletecollection patch update"
_BOTH = f"{_READ} {_WRITE}"

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
_EXPERIMENTAL = "gateway.networking.x-k8s.io"
_GATEWAY_API = "gateway.networking.k8s.io"
_GATEHOUSE = "gatehouse.dev"
_INFERENCE = "inference.networking.k8s.io"
_NETWORKING = "networking.k8s.io"
_NGINX = "gateway.nginx.org"
_POLICY = "policy"
_PROXY = "proxy.kubegateway.io"

_HEALTH = "/livez /readyz /healthz /version /version/"
_DOCUMENTS = "/openapi /openapi/* /api /api/* /apis /apis/*"
_ISSUER = (
    "/.well-known/openid-configuration /.well-known/openid-configuration/ "
    "/openid/v1/jwks /openid/v1/jwks/"
)

_ROUTES = "httproutes grpcroutes tlsroutes tcproutes udproutes"
_OF_GATEWAYS = f"gateways listenersets {_ROUTES} backendtlspolicies"
_EXPERIMENTS = "xbackends xbackendtrafficpolicies xtelemetrypolicies"


def _rule(verbs: str, groups: tuple[str, ...] | str, names: str) -> PolicyRule:
    return {
        "verbs": verbs.split(),
        "apiGroups": [groups] if isinstance(groups, str) else list(groups),
        "resources": names.split(),
    }


def _get(urls: str) -> PolicyRule:
    return {"verbs": ["get"], "nonResourceURLs": urls.split()}


def _and(names: str, subresource: str) -> str:
    return " ".join(f"{one} {one}/{subresource}" for one in names.split())


_VIEW = (
    _rule(_READ, _CORE, _and("namespaces pods resourcequotas services", "status")),
    _rule(_READ, _CORE, "configmaps endpoints events pods/log serviceaccounts"),
    _rule(_READ, _EVENTS, "events"),
    _rule(_READ, _DISCOVERY, "endpointslices"),
    _rule(_READ, _APPS, _and("daemonsets deployments replicasets", "status")),
    _rule(_READ, _APPS, "deployments/scale replicasets/scale"),
    _rule(_READ, _AUTOSCALING, _and("horizontalpodautoscalers", "status")),
    _rule(_READ, _POLICY, _and("poddisruptionbudgets", "status")),
    _rule(_READ, _NETWORKING, "networkpolicies"),
    _rule(_READ, _GATEWAY_API, _and(f"gatewayclasses {_OF_GATEWAYS}", "status")),
    _rule(_READ, _GATEWAY_API, "referencegrants"),
    _rule(_READ, _EXPERIMENTAL, _and(f"xmeshes {_EXPERIMENTS}", "status")),
    _rule(_READ, _INFERENCE, _and("inferencepools", "status")),
    _rule(_READ, (_NGINX, _GATEHOUSE), ALL),
)
"""Excludes Secrets: reading a token there gives the rights of its owner."""

_EDIT = (
    _rule(_READ, _CORE, "secrets"),
    _rule(_WRITE, _CORE, "configmaps events pods secrets serviceaccounts services"),
    _rule("create", _CORE, "pods/eviction serviceaccounts/token"),
    _rule("impersonate", _CORE, "serviceaccounts"),
    _rule(_WRITE, _APPS, "daemonsets deployments deployments/scale replicasets replicasets/scale"),
    _rule(_WRITE, _AUTOSCALING, "horizontalpodautoscalers"),
    _rule(_WRITE, _POLICY, "poddisruptionbudgets"),
    _rule(_WRITE, _NETWORKING, "networkpolicies"),
    _rule(_BOTH, _COORDINATION, "leases"),
    _rule(_WRITE, _GATEWAY_API, f"{_OF_GATEWAYS} referencegrants"),
    _rule(_WRITE, _EXPERIMENTAL, _EXPERIMENTS),
    _rule(_WRITE, _INFERENCE, "inferencepools"),
)
"""Excludes Endpoints and EndpointSlices: writing them gives access to Pods of other namespaces."""

_ADMIN = (
    _rule("create", _AUTHORIZATION, "localsubjectaccessreviews"),
    _rule(_BOTH, RBAC_GROUP, "roles rolebindings"),
    # These reach beyond the namespace: raw proxy configuration, and upstreams with credentials.
    _rule(_WRITE, (_NGINX, _GATEHOUSE), ALL),
    _rule(_BOTH, _PROXY, ALL),
)

_CONTROLLER: tuple[PolicyRule, ...] = tuple(
    json.loads(resources.files(__package__).joinpath("controller_rules.json").read_bytes())
)
"""Rules of the controller, which `make chart` derives from the kinds that it reads and writes."""

_NODE = (
    _rule(_READ, _CORE, "pods services"),
    _rule(_READ, _APPS, "daemonsets deployments"),
    _rule(_FOLLOW, _BATCH, "jobs"),
    _rule(_FOLLOW, _GATEWAY_API, "gatewayclasses gateways"),
    _rule("get", _CORE, "configmaps secrets"),
    _rule("create delete", _CORE, "pods"),
    _rule("create patch", _CORE, "events"),
    _rule("update", _CORE, "pods/status services/status"),
    _rule("update", _APPS, "daemonsets/status deployments/status"),
    _rule("update", _BATCH, "jobs/status"),
    _rule("create", _CORE, "serviceaccounts/token"),
)

_ROLES: dict[str, tuple[PolicyRule, ...]] = {
    "cluster-admin": EVERYTHING,
    "system:discovery": (_get(f"{_HEALTH} {_DOCUMENTS}"),),
    "system:public-info-viewer": (_get(_HEALTH),),
    "system:service-account-issuer-discovery": (_get(_ISSUER),),
    "system:basic-user": (
        _rule("create", _AUTHORIZATION, "selfsubjectaccessreviews selfsubjectrulesreviews"),
        _rule("create", _AUTHENTICATION, "selfsubjectreviews"),
    ),
    "system:auth-delegator": (
        _rule("create", _AUTHENTICATION, "tokenreviews"),
        _rule("create", _AUTHORIZATION, "subjectaccessreviews"),
    ),
    "system:cluster-trust-bundle-discovery": (_rule(_READ, _CERTIFICATES, "clustertrustbundles"),),
    CONTROLLER_USER: _CONTROLLER,
    NODE_USER: _NODE,
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
    CONTROLLER_USER: (("User", CONTROLLER_USER),),
    NODE_USER: (("User", NODE_USER),),
}
"""Subjects by name of the binding, which is also the name of the ClusterRole."""


def objects() -> list[Object]:
    """Return the default objects, roles first. Aggregated roles have no rules yet."""
    roles = [_object("ClusterRole", name, rules=list(rules)) for name, rules in _ROLES.items()]
    for name, (rules, gatherer) in _AGGREGATED.items():
        roles.append(_aggregated(name, gatherer))
        roles.append(
            _object("ClusterRole", f"system:aggregate-to-{name}", to=name, rules=list(rules))
        )
    bindings = [
        _object(
            "ClusterRoleBinding",
            name,
            roleRef={"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name},
            subjects=[
                {"apiGroup": RBAC_GROUP, "kind": kind, "name": who} for kind, who in subjects
            ],
        )
        for name, subjects in _BINDINGS.items()
    ]
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


def _aggregated(name: str, gatherer: str) -> Object:
    selector = {"matchLabels": {_AGGREGATE_TO + name: "true"}}
    rule = {"clusterRoleSelectors": [selector]}
    return _object("ClusterRole", name, to=gatherer, aggregationRule=rule, rules=[])


def _object(kind: str, name: str, *, to: str = "", **fields: object) -> Object:
    labels = {**_LABELS, **({_AGGREGATE_TO + to: "true"} if to else {})}
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels, "annotations": {**_ANNOTATIONS}},
        **fields,
    }
