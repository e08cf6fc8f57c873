"""Roles of Gatehouse's components, and the rights of the user-facing roles on its kinds.

The roles of the components contain the permissions that their code uses.
"""

from __future__ import annotations

import json
from importlib import resources

from kube_api_server.rbac.role_objects import (
    READ_AND_WRITE_VERBS,
    READ_VERBS,
    WRITE_VERBS,
    and_subresource,
    cluster_role,
    cluster_role_binding,
    resource_rule,
)
from kube_api_server.rbac.rules import ALL, PolicyRule
from kube_base.types.objects import Object

CONTROLLER_USER = "system:gatehouse:controller"
NODE_USER = "system:gatehouse:node"

_FOLLOW = "list watch"

_APPS = "apps"
_BATCH = "batch"
_CORE = ""
_EXPERIMENTAL = "gateway.networking.x-k8s.io"
_GATEWAY_API = "gateway.networking.k8s.io"
_GATEHOUSE = "gatehouse.dev"
_INFERENCE = "inference.networking.k8s.io"
_NGINX = "gateway.nginx.org"
_PROXY = "proxy.kubegateway.io"

_ROUTES = "httproutes grpcroutes tlsroutes tcproutes udproutes"
_OF_GATEWAYS = f"gateways listenersets {_ROUTES} backendtlspolicies"
_EXPERIMENTS = "xbackends xbackendtrafficpolicies xtelemetrypolicies"

_VIEW = (
    resource_rule(
        READ_VERBS, _GATEWAY_API, and_subresource(f"gatewayclasses {_OF_GATEWAYS}", "status")
    ),
    resource_rule(READ_VERBS, _GATEWAY_API, "referencegrants"),
    resource_rule(READ_VERBS, _EXPERIMENTAL, and_subresource(f"xmeshes {_EXPERIMENTS}", "status")),
    resource_rule(READ_VERBS, _INFERENCE, and_subresource("inferencepools", "status")),
    resource_rule(READ_VERBS, (_NGINX, _GATEHOUSE), ALL),
)

_EDIT = (
    resource_rule(WRITE_VERBS, _GATEWAY_API, f"{_OF_GATEWAYS} referencegrants"),
    resource_rule(WRITE_VERBS, _EXPERIMENTAL, _EXPERIMENTS),
    resource_rule(WRITE_VERBS, _INFERENCE, "inferencepools"),
)

_ADMIN = (
    # These reach beyond the namespace: raw proxy configuration, and upstreams with credentials.
    resource_rule(WRITE_VERBS, (_NGINX, _GATEHOUSE), ALL),
    resource_rule(READ_AND_WRITE_VERBS, _PROXY, ALL),
)

_NODE = (
    resource_rule(READ_VERBS, _CORE, "pods services"),
    resource_rule(READ_VERBS, _APPS, "daemonsets deployments"),
    resource_rule(_FOLLOW, _BATCH, "jobs"),
    resource_rule(_FOLLOW, _GATEWAY_API, "gatewayclasses gateways"),
    resource_rule("get", _CORE, "configmaps secrets"),
    resource_rule("create delete", _CORE, "pods"),
    resource_rule("create patch", _CORE, "events"),
    resource_rule("update", _CORE, "pods/status services/status"),
    resource_rule("update", _APPS, "daemonsets/status deployments/status"),
    resource_rule("update", _BATCH, "jobs/status"),
    resource_rule("create", _CORE, "serviceaccounts/token"),
)


def gatehouse_roles() -> list[Object]:
    """Return the ClusterRoles and bindings."""
    return [
        cluster_role("gatehouse:aggregate-to-view", _VIEW, aggregate_to="view"),
        cluster_role("gatehouse:aggregate-to-edit", _EDIT, aggregate_to="edit"),
        cluster_role("gatehouse:aggregate-to-admin", _ADMIN, aggregate_to="admin"),
        cluster_role(CONTROLLER_USER, _controller_rules()),
        cluster_role(NODE_USER, _NODE),
        cluster_role_binding(CONTROLLER_USER, ("User", CONTROLLER_USER)),
        cluster_role_binding(NODE_USER, ("User", NODE_USER)),
    ]


def _controller_rules() -> list[PolicyRule]:
    """Return what `make chart` derives from the kinds that the controller reads and writes."""
    file = resources.files(__package__).joinpath("controller_rules.json")
    rules: list[PolicyRule] = json.loads(file.read_bytes())
    return rules
