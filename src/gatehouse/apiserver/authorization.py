"""Who may do what: a short table of rules for the parts of Gatehouse, everything for admins."""

from __future__ import annotations

import msgspec

from gatehouse.apiserver.authentication import User
from gatehouse.apiserver.errors import ApiError

ADMINS = "system:masters"
CONTROLLER = "system:gatehouse:controller"
NODE = "system:gatehouse:node"


class Attributes(msgspec.Struct, frozen=True):
    """What is asked for."""

    verb: str
    group: str
    resource: str
    """Plural, with the subresource: ``pods/status``."""
    namespace: str
    name: str


_READ = frozenset({"get", "list", "watch"})
_WRITE = frozenset({"create", "update", "patch", "delete"})
_CHANGE = frozenset({"update", "patch"})

Rules = tuple[tuple[frozenset[str], frozenset[str]], ...]

RULES: dict[str, Rules] = {
    CONTROLLER: (
        (
            _READ,
            frozenset(
                {
                    "configmaps",
                    "deployments",
                    "endpointslices",
                    "gatewayclasses",
                    "gateways",
                    "httproutes",
                    "leases",
                    "namespaces",
                    "pods",
                    "referencegrants",
                    "secrets",
                    "serviceaccounts",
                    "services",
                    "snippetsfilters",
                }
            ),
        ),
        (
            _WRITE,
            frozenset(
                {"configmaps", "deployments", "events", "leases", "serviceaccounts", "services"}
            ),
        ),
        (frozenset({"create"}), frozenset({"gatewayclasses", "tokenreviews"})),
        (
            _CHANGE,
            frozenset({"gatewayclasses/status", "gateways/status", "httproutes/status"}),
        ),
    ),
    NODE: (
        (
            _READ,
            frozenset(
                {
                    "configmaps",
                    "deployments",
                    "namespaces",
                    "pods",
                    "secrets",
                    "serviceaccounts",
                    "services",
                }
            ),
        ),
        (_WRITE, frozenset({"pods", "events"})),
        (_CHANGE, frozenset({"pods/status", "deployments/status", "services/status"})),
        (frozenset({"create"}), frozenset({"serviceaccounts/token"})),
    ),
}
"""By user: verbs and resources."""


def authorize(user: User, wanted: Attributes) -> None:
    """Pass, or raise ApiError 403."""
    if ADMINS in user.groups or wanted.resource == "selfsubjectreviews":
        return
    for verbs, resources in RULES.get(user.name, ()):
        if wanted.verb in verbs and wanted.resource in resources:
            return
    named = f' "{wanted.name}"' if wanted.name else ""
    qualified = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    scope = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    message = (
        f'{qualified}{named} is forbidden: User "{user.name}" cannot {wanted.verb} resource '
        f'"{wanted.resource}" in API group "{wanted.group}" {scope}'
    )
    raise ApiError(
        403,
        "Forbidden",
        message,
        kind=wanted.resource,
        group=wanted.group,
        name=wanted.name,
    )
