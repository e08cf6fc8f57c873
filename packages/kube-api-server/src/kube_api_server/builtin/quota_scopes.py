"""Scopes of ResourceQuotas: the Pods or PersistentVolumeClaims that a quota counts.

https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-scopes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kube_api_server.causes import invalid_cause, required_cause
from kube_api_server.errors import Cause
from kube_base.types.objects import Object

_VOLUME_CLASS = "VolumeAttributesClass"
_CLASSES = ("PriorityClass", _VOLUME_CLASS)
_PLAIN = (
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "CrossNamespacePodAffinity",
)
_CONFLICTING = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_OF_PODS = frozenset(
    {
        "cpu",
        "limits.cpu",
        "limits.memory",
        "memory",
        "pods",
        "requests.cpu",
        "requests.memory",
    }
)
"""Standard names that a quota with scopes of Pods may limit."""
_OF_VOLUMES = frozenset({"persistentvolumeclaims", "requests.storage"})
"""Standard names that a quota with the scope of volumes may limit."""


class PodScope(msgspec.Struct, frozen=True):
    """Properties of a Pod that scopes select."""

    terminating: bool
    """True if the Pod has a deadline."""
    best_effort: bool
    """True if no container requests or limits CPU or memory."""
    cross_namespace: bool
    """True if an affinity refers to Pods of other namespaces."""
    priority_class: str


class VolumeScope(msgspec.Struct, frozen=True):
    """Properties of a PersistentVolumeClaim that scopes select."""

    classes: frozenset[str]
    """VolumeAttributesClasses: the requested one, the current one, and that of a change."""


QuotaScope = PodScope | VolumeScope | None
"""Properties that scopes select; None for objects of other kinds."""


def volume_scope_of(claim: Mapping[str, Any]) -> VolumeScope:
    """Return the properties of a PersistentVolumeClaim that scopes select."""
    status = claim.get("status") or {}
    classes = (
        (claim.get("spec") or {}).get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return VolumeScope(frozenset(filter(None, classes)))


def pod_scope_of(pod: Mapping[str, Any]) -> PodScope:
    """Return the properties of a Pod that scopes select."""
    spec = pod.get("spec") or {}
    return PodScope(
        (spec.get("activeDeadlineSeconds") or -1) >= 0 or spec.get("activeDeadlineSeconds") == 0,
        _is_best_effort(spec),
        any(_is_cross_namespace(term) for term in _affinity_terms(spec.get("affinity") or {})),
        spec.get("priorityClassName") or "",
    )


def is_in_scope(quota: Mapping[str, Any], scope: QuotaScope) -> bool:
    """Return whether a quota counts an object."""
    return all(_matches(requirement, scope) for requirement in _requirements(quota))


def check_scopes(spec: Object, standard: frozenset[str]) -> Iterator[Cause]:
    """Yield violations of scopes. `standard` are the names of quotas that Kubernetes defines."""
    hard = [name for name in spec.get("hard") or () if name in standard]
    scopes = spec.get("scopes") or []
    for scope in scopes:
        yield from _check_scope("spec.scopes", scope, scopes, hard)
    yield from _check_conflicts("spec.scopes", scopes)
    field = "spec.scopeSelector.matchExpressions"
    selector = spec.get("scopeSelector") or {}
    requirements = selector.get("matchExpressions") or ()
    for requirement in requirements:
        scope = requirement.get("scopeName")
        if scope not in (*_PLAIN, *_CLASSES):
            yield invalid_cause(f"{field}.scopeName", scope, "unsupported scope")
        else:
            yield from _check_scope(field, scope, selector, hard)
        yield from _check_operator(field, requirement)
    yield from _check_conflicts(field, [one.get("scopeName") for one in requirements])


def _check_scope(field: str, scope: str, value: Any, hard: list[str]) -> Iterator[Cause]:
    if scope not in (*_PLAIN, *_CLASSES):
        yield invalid_cause(field, value, "unsupported scope")
    allowed = _OF_VOLUMES if scope == _VOLUME_CLASS else _OF_PODS
    if scope == "BestEffort":
        allowed = frozenset({"pods"})
    for _ in sorted(set(hard) - allowed):
        yield invalid_cause(field, value, "unsupported scope applied to resource")


def _check_conflicts(field: str, scopes: list[Any]) -> Iterator[Cause]:
    if any(set(pair) <= set(scopes) for pair in _CONFLICTING):
        yield invalid_cause(field, scopes, "conflicting scopes")


def _check_operator(field: str, requirement: Object) -> Iterator[Cause]:
    operator, values = requirement.get("operator"), requirement.get("values") or []
    if requirement.get("scopeName") in _PLAIN and operator != "Exists":
        yield invalid_cause(f"{field}.operator", operator, "must be 'Exists' for this scope")
    if operator in ("In", "NotIn"):
        if not values:
            why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield required_cause(f"{field}.values", why)
    elif operator not in ("Exists", "DoesNotExist"):
        yield invalid_cause(f"{field}.operator", operator, "not a valid selector operator")
    elif values:
        why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
        yield invalid_cause(f"{field}.values", values, why)


def _requirements(quota: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    spec = quota.get("spec") or {}
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    return scopes + list((spec.get("scopeSelector") or {}).get("matchExpressions") or ())


def _matches(requirement: Mapping[str, Any], scope: QuotaScope) -> bool:
    name = requirement.get("scopeName")
    if isinstance(scope, VolumeScope):
        return name == _VOLUME_CLASS and _selects(requirement, scope.classes)
    if scope is None or name == _VOLUME_CLASS:
        return False
    match name:
        case "Terminating":
            return scope.terminating
        case "NotTerminating":
            return not scope.terminating
        case "BestEffort":
            return scope.best_effort
        case "NotBestEffort":
            return not scope.best_effort
        case "CrossNamespacePodAffinity":
            return scope.cross_namespace
    return _selects(requirement, frozenset(filter(None, (scope.priority_class,))))


def _selects(requirement: Mapping[str, Any], classes: frozenset[str]) -> bool:
    """Return whether a requirement selects one of the classes of an object, or their absence."""
    values = frozenset(requirement.get("values") or ())
    match requirement.get("operator"):
        case "In":
            return bool(classes & values)
        case "NotIn":
            return not classes or bool(classes - values)
        case "DoesNotExist":
            return not classes
    return bool(classes)


def _is_best_effort(spec: Mapping[str, Any]) -> bool:
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ()), spec]
    for container in containers:
        resources = container.get("resources") or {}
        for kind in ("requests", "limits"):
            amounts = resources.get(kind) or {}
            if any(amounts.get(name, "0") != "0" for name in ("cpu", "memory")):
                return False
    return True


def _affinity_terms(affinity: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        yield from rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}


def _is_cross_namespace(term: Mapping[str, Any]) -> bool:
    return bool(term.get("namespaces")) or term.get("namespaceSelector") is not None
