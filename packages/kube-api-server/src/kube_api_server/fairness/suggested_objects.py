"""FlowSchemas and PriorityLevelConfigurations that kube-apiserver creates.

This server creates them for clients that read them. Its own levels do not follow them: they are in
:mod:`schemas`, with the same names and shares.
"""

from __future__ import annotations

from typing import Any

from kube_api_server.fairness.schemas import EXEMPT, SHARES
from kube_api_server.identity.users import ADMINS, AUTHENTICATED, UNAUTHENTICATED
from kube_base.types.objects import Object

GROUP = "flowcontrol.apiserver.k8s.io"
_ANNOTATIONS = {"apf.kubernetes.io/autoupdate-spec": "true"}

_QUEUES = {
    "system": (64, 6, 33),
    "node-high": (64, 6, 25),
    "leader-election": (16, 4, 0),
    "workload-high": (128, 6, 50),
    "workload-low": (128, 6, 90),
    "global-default": (128, 6, 50),
}
"""Number of queues, size of a hand, and lendable percent by level. Other levels reject."""


def _group(name: str) -> Object:
    return {"kind": "Group", "group": {"name": name}}


def _user(name: str) -> Object:
    return {"kind": "User", "user": {"name": name}}


def _rule(verbs: str, group: str, resources: str, *, cluster: bool = True) -> Object:
    rule: Object = {
        "verbs": verbs.split(),
        "apiGroups": [group],
        "resources": resources.split(),
        "namespaces": ["*"],
    }
    return rule | ({"clusterScope": True} if cluster else {})


_EVERYONE = (_group(UNAUTHENTICATED), _group(AUTHENTICATED))
_SYSTEM_ACCOUNTS: Object = {
    "kind": "ServiceAccount",
    "serviceAccount": {"namespace": "kube-system", "name": "*"},
}
_MANAGER, _SCHEDULER = _user("system:kube-controller-manager"), _user("system:kube-scheduler")
_NODES = _group("system:nodes")
_ALL = (_rule("*", "*", "*"),)
_ALL_URLS: Object = {"verbs": ["*"], "nonResourceURLs": ["*"]}
_PROBES: Object = {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}
_LEASES = ("coordination.k8s.io", "leases")
_NODE_RULES = (
    _rule("*", "", "nodes nodes/status"),
    _rule("*", *_LEASES, cluster=False),
)
_ELECTION_RULES = (_rule("get create update", *_LEASES, cluster=False),)

_SCHEMAS: tuple[tuple[str, str, int, str, tuple[Object, ...], tuple[Object, ...]], ...] = (
    ("exempt", EXEMPT, 1, "", (_group(ADMINS),), _ALL),
    ("probes", EXEMPT, 2, "", _EVERYONE, ()),
    (
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        (_MANAGER, _SCHEDULER, _SYSTEM_ACCOUNTS),
        _ELECTION_RULES,
    ),
    ("system-node-high", "node-high", 400, "ByUser", (_NODES,), _NODE_RULES),
    ("system-nodes", "system", 500, "ByUser", (_NODES,), _ALL),
    ("kube-controller-manager", "workload-high", 800, "ByNamespace", (_MANAGER,), _ALL),
    ("kube-scheduler", "workload-high", 800, "ByNamespace", (_SCHEDULER,), _ALL),
    (
        "kube-system-service-accounts",
        "workload-high",
        900,
        "ByNamespace",
        (_SYSTEM_ACCOUNTS,),
        _ALL,
    ),
    ("service-accounts", "workload-low", 9000, "ByUser", (_group("system:serviceaccounts"),), _ALL),
    ("global-default", "global-default", 9900, "ByUser", _EVERYONE, _ALL),
    ("catch-all", "catch-all", 10_000, "ByUser", _EVERYONE, _ALL),
)
"""Name, level, precedence, distinguisher, subjects and rules."""


def _schema_spec(
    level: str,
    precedence: int,
    method: str,
    subjects: tuple[Object, ...],
    rules: tuple[Object, ...],
) -> Object:
    rule: dict[str, Any] = {"subjects": list(subjects)}
    if rules:
        rule["resourceRules"] = list(rules)
    if rules is _ALL:
        rule["nonResourceRules"] = [_ALL_URLS]
    elif not rules:
        rule["nonResourceRules"] = [_PROBES]
    spec: Object = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [rule],
    }
    return spec | ({"distinguisherMethod": {"type": method}} if method else {})


def _level_spec(name: str) -> Object:
    if name == EXEMPT:
        none = {"nominalConcurrencyShares": 0, "lendablePercent": 0}
        return {"type": "Exempt", "exempt": none}
    response: Object = {"type": "Reject"}
    lendable = 0
    if name in _QUEUES:
        queues, hand, lendable = _QUEUES[name]
        queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": 50}
        response = {"type": "Queue", "queuing": queuing}
    limited = {
        "nominalConcurrencyShares": SHARES[name],
        "limitResponse": response,
        "lendablePercent": lendable,
    }
    return {"type": "Limited", "limited": limited}


_SPECS: dict[tuple[str, str], Object] = {
    **{("prioritylevelconfigurations", name): _level_spec(name) for name in (EXEMPT, *SHARES)},
    **{("flowschemas", name): _schema_spec(*rest) for name, *rest in _SCHEMAS},  # type: ignore[arg-type]
}

MANDATORY = {key: spec for key, spec in _SPECS.items() if key[1] in ("exempt", "catch-all")}
"""Specs by plural and name that no client may change."""


def suggested_objects() -> list[tuple[str, Object]]:
    """Return the objects with the plural names of their kinds."""
    return [
        (plural, {"metadata": {"name": name, "annotations": dict(_ANNOTATIONS)}, "spec": spec})
        for (plural, name), spec in _SPECS.items()
    ]
