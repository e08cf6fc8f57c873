"""Fields of ``spec.kubernetes`` that the parameters of a Gateway may set. No I/O.

The author of a Gateway may have rights in one namespace only. The controller writes Deployments,
DaemonSets, Services and NetworkPolicies with its own rights, and ``gatehouse up`` runs the Pods as
processes of its own user. Therefore a field is allowed here only if it gives no access to the node,
to other namespaces, or to what the author cannot read. Every other field, also one that is added to
the API later, belongs to the parameters of the GatewayClass, which the operator writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ANY = None
"""Rule for a field whose value is not restricted."""

Rule = Mapping[str, Any] | tuple[Any, ...] | None
"""Allowed fields, with their rules; or allowed values; or ANY. A list's rule is that of its items.
"""

# No namespaces and namespaceSelector: required anti-affinity to Pods of other namespaces keeps
# these Pods from their nodes.
_AFFINITY_TERM: Rule = {
    "labelSelector": ANY,
    "matchLabelKeys": ANY,
    "mismatchLabelKeys": ANY,
    "topologyKey": ANY,
}
_POD_AFFINITY: Rule = {
    "requiredDuringSchedulingIgnoredDuringExecution": _AFFINITY_TERM,
    "preferredDuringSchedulingIgnoredDuringExecution": {
        "weight": ANY,
        "podAffinityTerm": _AFFINITY_TERM,
    },
}

# No volumes: hostPath, and Secrets that the author may not read.
_POD: Rule = {
    "terminationGracePeriodSeconds": ANY,
    "affinity": {
        "nodeAffinity": ANY,
        "podAffinity": _POD_AFFINITY,
        "podAntiAffinity": _POD_AFFINITY,
    },
    "nodeSelector": ANY,
    "tolerations": ANY,
    "topologySpreadConstraints": ANY,
}

# No repository and tag, no exec and httpGet of a lifecycle, and no hostPorts: commands in the Pod,
# requests of the kubelet, and ports of the node.
_CONTAINER: Rule = {
    "image": {"pullPolicy": ANY},
    "resources": {"requests": ANY, "limits": ANY},
    "lifecycle": {"preStop": {"sleep": {"seconds": ANY}}},
    "readinessProbe": {"initialDelaySeconds": ANY, "periodSeconds": ANY},
}

_DAEMON_SET: Mapping[str, Any] = {"pod": _POD, "container": _CONTAINER}

ALLOWED: Mapping[str, Any] = {
    "deployment": {
        **_DAEMON_SET,
        "replicas": ANY,
        "autoscaling": ANY,
        "podDisruptionBudget": ANY,
    },
    "daemonSet": _DAEMON_SET,
    # No nodePorts: all namespaces share them. loadBalancerIP asks for no more than the addresses
    # in the spec of a Gateway. Patches could set externalIPs and the selector.
    "service": {
        "type": ANY,
        "externalTrafficPolicy": ANY,
        "loadBalancerIP": ANY,
        "loadBalancerClass": ANY,
        "loadBalancerSourceRanges": ANY,
    },
    # Isolation that the operator asks for stays: it can be added, but not removed or widened.
    "networkPolicy": {"enable": (True,), "metricsFrom": ANY},
}

_RIVALS = {"deployment": "daemonSet", "daemonSet": "deployment"}

MAX_LISTED_FIELDS = 8
"""Maximum number of refused fields in a message."""


def limit(
    requested: Mapping[str, Any], outer: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the allowed part of ``spec.kubernetes`` of a Gateway and the paths of refused fields.

    ``outer``: ``spec.kubernetes`` of the class. A Gateway cannot replace the Deployment of its
    class by a DaemonSet, or the other way around: settings of the class would be lost with it.
    """
    rules = {
        name: rule
        for name, rule in ALLOWED.items()
        if _RIVALS.get(name) not in outer or name in outer
    }
    refused: list[str] = []
    allowed = _limit(requested, rules, "spec.kubernetes", refused)
    return allowed, tuple(refused)


def rejection_message(refused: Sequence[str]) -> str:
    """Return the message about refused fields."""
    more = (
        f" and {len(refused) - MAX_LISTED_FIELDS} more" if len(refused) > MAX_LISTED_FIELDS else ""
    )
    return (
        f"{', '.join(refused[:MAX_LISTED_FIELDS])}{more}: may be set only by the parameters of the "
        "GatewayClass; all other fields apply"
    )


def _limit(value: Any, rule: Rule, where: str, refused: list[str]) -> Any:
    """Return the allowed part of a value; append the paths of the rest to ``refused``."""
    if rule is ANY:
        return value
    if isinstance(value, list | tuple):
        return [_limit(e, rule, f"{where}[{i}]", refused) for i, e in enumerate(value)]
    if not isinstance(value, Mapping) or not isinstance(rule, Mapping):
        return value
    allowed = {}
    for name, each in value.items():
        if each is None:
            # Treated as missing: null must not remove a value of the class.
            continue
        place, inner = f"{where}.{name}", rule.get(name, ())
        if isinstance(inner, tuple) and each not in inner:
            refused.append(place)
        else:
            allowed[name] = _limit(each, inner, place, refused)
    return allowed
