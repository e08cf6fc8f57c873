"""Fields that the parameters of a Gateway may set, and their ceilings. No I/O.

The author of a Gateway may have rights in one namespace only. The controller writes Deployments,
DaemonSets, Services and NetworkPolicies with its own rights, and ``gatehouse up`` runs the Pods as
processes of its own user. Therefore a field is allowed here only if it gives no access to the node,
to other namespaces, or to what the author cannot read. Every other field, also one that is added to
the API later, belongs to the parameters of the GatewayClass, which the operator writes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from gatehouse.apis.data_plane_parameters import ParametersSpec
from gatehouse.apis.gateway import METADATA_OPTION, Gateway, is_allowed_key
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.shortened_lists import shortened_list
from kube_base.types.quantities import quantity

_ANY = None
"""Rule for a field whose value is not restricted."""


class Ceiling(msgspec.Struct, frozen=True):
    """Rule for a number or quantity that the operator limits."""

    name: str
    """Name in :data:`~gatehouse.apis.resource_limits.RESOURCE_LIMITS`."""


Rule = Mapping[str, Any] | tuple[Any, ...] | Ceiling | None
"""Allowed fields, with their rules; or allowed values; or a ceiling; or ANY. A list's rule is that
of its items.
"""

# No namespaces and namespaceSelector: required anti-affinity to Pods of other namespaces keeps
# these Pods from their nodes.
_AFFINITY_TERM: Rule = {
    "labelSelector": _ANY,
    "matchLabelKeys": _ANY,
    "mismatchLabelKeys": _ANY,
    "topologyKey": _ANY,
}
_POD_AFFINITY: Rule = {
    "requiredDuringSchedulingIgnoredDuringExecution": _AFFINITY_TERM,
    "preferredDuringSchedulingIgnoredDuringExecution": {
        "weight": _ANY,
        "podAffinityTerm": _AFFINITY_TERM,
    },
}

# No volumes: hostPath, and Secrets that the author may not read.
_POD: Rule = {
    "terminationGracePeriodSeconds": Ceiling("gracePeriodSeconds"),
    "affinity": {
        "nodeAffinity": _ANY,
        "podAffinity": _POD_AFFINITY,
        "podAntiAffinity": _POD_AFFINITY,
    },
    "nodeSelector": _ANY,
    "tolerations": _ANY,
    "topologySpreadConstraints": _ANY,
}

# No huge pages and devices: the author may have no quota for them.
_RESOURCES: Rule = {
    "cpu": Ceiling("cpu"),
    "memory": Ceiling("memory"),
    "ephemeral-storage": Ceiling("ephemeralStorage"),
}

# No repository and tag, no exec and httpGet of a lifecycle, and no hostPorts: commands in the Pod,
# requests of the kubelet, and ports of the node.
_CONTAINER: Rule = {
    "image": {"pullPolicy": _ANY},
    "resources": {"requests": _RESOURCES, "limits": _RESOURCES},
    "lifecycle": {"preStop": {"sleep": {"seconds": Ceiling("gracePeriodSeconds")}}},
    "readinessProbe": dict.fromkeys(
        ("initialDelaySeconds", "periodSeconds", "port", "path", "expose"), _ANY
    ),
    "debug": _ANY,
}

_DAEMON_SET: Mapping[str, Any] = {"pod": _POD, "container": _CONTAINER, "wafContainers": _ANY}

ALLOWED: Mapping[str, Any] = {
    "deployment": {
        **_DAEMON_SET,
        "replicas": Ceiling("replicas"),
        "autoscaling": {
            "enable": _ANY,
            "minReplicas": Ceiling("replicas"),
            "maxReplicas": Ceiling("replicas"),
            "targetCPUUtilizationPercentage": _ANY,
            "targetMemoryUtilizationPercentage": _ANY,
            # No external metrics: they are not those of one namespace.
            "metrics": {"type": _ANY, "resource": _ANY, "containerResource": _ANY, "pods": _ANY},
            "behavior": _ANY,
        },
        "podDisruptionBudget": {
            "minAvailable": _ANY,
            "maxUnavailable": _ANY,
            "unhealthyPodEvictionPolicy": _ANY,
        },
    },
    "daemonSet": _DAEMON_SET,
    # No nodePorts and loadBalancerIP: all namespaces share them. The addresses that a Gateway may
    # request are those in its spec. Patches could set externalIPs and the selector.
    "service": {
        "type": ("ClusterIP", "LoadBalancer", "NodePort"),
        "externalTrafficPolicy": _ANY,
        "loadBalancerClass": _ANY,
        "loadBalancerSourceRanges": _ANY,
    },
    # Isolation that the operator asks for stays: it can be added, but not removed or widened.
    "networkPolicy": {"enable": (True,), "metricsFrom": _ANY},
}

ALLOWED_SETTINGS = (
    "ipFamily",
    "pathNormalization",
    "disableHTTP2",
    "disableSNIHostValidation",
    "disableBaseHeaders",
    "useClusterIP",
    "zoneSize",
    "serverTokens",
    "rewriteClientIP",
    "compression",
    "logging",
    "metrics",
    "telemetry",
    "workerConnections",
    "resourceLimits",
    "waf",
    "nginxPlus",
    "kubernetes",
)
"""Fields of ``spec``. All but ``kubernetes`` configure only the Gateway's own proxy. Ceilings
of ``resourceLimits`` count only where they are lower than those of the GatewayClass.
"""

NAME_SERVERS = "dnsResolver"
"""Field of ``spec`` that a Gateway may set only if every external name is allowed: its name servers
could give allowed names any address."""

_RIVALS = {"deployment": "daemonSet", "daemonSet": "deployment"}

MAX_LISTED_FIELDS = 8
"""Maximum number of refused fields in a message."""


class Limited(msgspec.Struct, frozen=True):
    """The allowed part of the parameters of a Gateway, and what was removed from them."""

    spec: ParametersSpec
    refused: tuple[str, ...] = ()
    """Paths of the fields that only parameters of the GatewayClass may set."""
    excess: tuple[str, ...] = ()
    """Messages about values above their ceilings."""

    @property
    def message(self) -> str:
        """Message about all that was removed; empty if nothing was."""
        refused = [refused_fields_message(self.refused)] if self.refused else []
        excess = [f"{problem}; the field is ignored" for problem in self.excess]
        return "; ".join((*refused, *excess))


def limit(
    requested: ParametersSpec,
    outer: Mapping[str, Any],
    limits: ResourceLimits,
    *,
    name_servers: bool = False,
) -> Limited:
    """Return the allowed part of the parameters of a Gateway.

    ``name_servers``: whether it may choose name servers. ``outer``: ``spec.kubernetes`` of the
    class. A Gateway cannot replace the Deployment of its class by a DaemonSet, or the other way
    around: settings of the class would be lost with it.
    """
    rules = {
        name: rule
        for name, rule in ALLOWED.items()
        if _RIVALS.get(name) not in outer or name in outer
    }
    walk = _Walk(limits, [], [])
    changes: dict[str, Any] = {}
    for field in msgspec.structs.fields(ParametersSpec):
        if field.encode_name == NAME_SERVERS and name_servers:
            continue
        if field.encode_name not in ALLOWED_SETTINGS:
            changes[field.name] = field.default
            if getattr(requested, field.name) != field.default:
                walk.refused.append(f"spec.{field.encode_name}")
    if requested.kubernetes is not None and "kubernetes" in ALLOWED_SETTINGS:
        changes["kubernetes"] = walk.limited(requested.kubernetes, rules, "spec.kubernetes")
    spec = msgspec.structs.replace(requested, **changes)
    return Limited(spec, tuple(walk.refused), tuple(walk.excess))


def refused_fields_message(refused: Sequence[str]) -> str:
    """Return the message about refused fields."""
    fields = shortened_list(refused, MAX_LISTED_FIELDS)
    return (
        f"{fields}: may be set only by the parameters of the GatewayClass; all other fields apply"
    )


def refused_metadata(gateway: Gateway, domains: Collection[str]) -> str:
    """Return the message about labels and annotations that are not set; empty if all are."""
    infrastructure = gateway.spec.infrastructure
    refused = [
        f"spec.infrastructure.{field}[{key}]"
        for field in ("labels", "annotations")
        for key in getattr(infrastructure, field)
        if not is_allowed_key(key, domains)
    ]
    if not refused:
        return ""
    fields = shortened_list(refused, MAX_LISTED_FIELDS)
    return f"{fields}: not set: {METADATA_OPTION} does not allow the domain of the key"


class _Walk(msgspec.Struct, frozen=True):
    """Walk over a value and its rules that collects what is removed."""

    limits: ResourceLimits
    refused: list[str]
    excess: list[str]

    def limited(self, value: Any, rule: Rule, where: str) -> Any:
        """Return the allowed part of a value."""
        if rule is _ANY:
            return value
        if isinstance(value, list | tuple):
            return [self.limited(e, rule, f"{where}[{i}]") for i, e in enumerate(value)]
        if not isinstance(value, Mapping) or not isinstance(rule, Mapping):
            return value
        allowed = {}
        for name, child in value.items():
            if child is None:
                # Treated as missing: null must not remove a value of the class.
                continue
            place, inner = f"{where}.{name}", rule.get(name, ())
            if isinstance(inner, tuple) and child not in inner:
                self.refused.append(place)
            elif isinstance(inner, Ceiling) and (message := self._excess(inner, child)):
                self.excess.append(f"{place}: {message}")
            else:
                allowed[name] = self.limited(child, inner, place)
        return allowed

    def _excess(self, ceiling: Ceiling, value: Any) -> str:
        """Return why a value is above its ceiling; empty if it is not above."""
        try:
            number = float(quantity(str(value)))
        except ValueError:
            return f"{value!r} must be a number or quantity"
        return self.limits.excess(ceiling.name, number, value)
