"""Validation of FlowSchemas and PriorityLevelConfigurations.

https://kubernetes.io/docs/concepts/cluster-administration/flow-control
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from kube_api_server.causes import (
    forbidden_cause,
    invalid_cause,
    required_cause,
    unsupported_cause,
)
from kube_api_server.errors import Cause
from kube_api_server.fairness.suggested_objects import MANDATORY
from kube_api_server.objects.metadata import (
    NAME_LABEL,
    NAME_LABEL_RULE,
    SUBDOMAIN,
    SUBDOMAIN_RULE,
)
from kube_base.types.objects import Object

_VERBS = tuple("create delete deletecollection get list patch proxy update watch".split())  # noqa: SIM905
_SUBJECTS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
"""Fields of a subject by its kind."""
_MAX_PRECEDENCE = 10_000
_MAX_QUEUES = 10_000_000
_MAX_BITS = 60
"""Maximum number of bits of a hash that a hand of queues needs."""


def check_flow_schema(obj: Object, _: Object | None) -> Iterator[Cause]:
    """Yield the violations of a FlowSchema."""
    spec = obj.get("spec") or {}
    name, precedence = obj["metadata"].get("name"), spec.get("matchingPrecedence", 0)
    field = "spec.matchingPrecedence"
    if precedence <= 0:
        yield invalid_cause(field, precedence, "must be a positive value")
    if precedence > _MAX_PRECEDENCE:
        yield invalid_cause(field, precedence, f"must not be greater than {_MAX_PRECEDENCE}")
    if precedence == 1 and name != "exempt":
        why = "only the schema named 'exempt' may have matchingPrecedence 1"
        yield invalid_cause(field, precedence, why)
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type") not in ("ByNamespace", "ByUser"):
        yield unsupported_cause("spec.distinguisherMethod.type", method, ("ByNamespace", "ByUser"))
    level = (spec.get("priorityLevelConfiguration") or {}).get("name")
    if level and not SUBDOMAIN.fullmatch(level):
        yield invalid_cause("spec.priorityLevelConfiguration.name", level, SUBDOMAIN_RULE)
    elif level == "":
        why = "must reference a priority level"
        yield required_cause("spec.priorityLevelConfiguration.name", why)
    for index, rule in enumerate(spec.get("rules") or ()):
        yield from _flow_rule(f"spec.rules[{index}]", rule)
    yield from _mandatory("flowschemas", name, spec, spec)


def _mandatory(plural: str, name: Any, spec: Object, compared: Object) -> Iterator[Cause]:
    """Yield the violation of an object that has to be as Kubernetes defines it."""
    fixed = MANDATORY.get((plural, name))
    if fixed is not None and compared != fixed:
        but = " except the 'spec.exempt' field" if spec is not compared else ""
        yield invalid_cause("spec", spec, f"spec of '{name}'{but} must equal the fixed value")


def _flow_rule(field: str, rule: Mapping[str, Any]) -> Iterator[Cause]:
    for index, subject in enumerate(rule.get("subjects") or ()):
        yield from _flow_subject(f"{field}.subjects[{index}]", subject)
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        why = "at least one of resourceRules and nonResourceRules has to be non-empty"
        yield required_cause(field, why)
    for index, inner in enumerate(rule.get("resourceRules") or ()):
        yield from _resource_rule(f"{field}.resourceRules[{index}]", inner)
    for index, inner in enumerate(rule.get("nonResourceRules") or ()):
        place = f"{field}.nonResourceRules[{index}]"
        yield from _verbs(place, inner)
        yield from _urls(f"{place}.nonResourceURLs", inner)


def _flow_subject(field: str, subject: Mapping[str, Any]) -> Iterator[Cause]:
    kind = subject.get("kind", "")
    if kind not in _SUBJECTS:
        yield unsupported_cause(f"{field}.kind", kind, _SUBJECTS)
        return
    own = _SUBJECTS[kind]
    details = subject.get(own)
    if details is None:
        yield required_cause(f"{field}.{own}", f"{own} is required when subject kind is '{kind}'")
    elif details.get("name") == "":
        yield required_cause(f"{field}.{own}.name")
    if kind == "ServiceAccount" and details is not None:
        yield from _account(f"{field}.{own}", details)
    for other_kind, other in _SUBJECTS.items():
        if other_kind != kind and subject.get(other) is not None:
            why = f"{other} is forbidden when subject kind is not '{other_kind}'"
            yield forbidden_cause(f"{field}.{other}", why)


def _account(field: str, account: Mapping[str, Any]) -> Iterator[Cause]:
    name, namespace = account.get("name"), account.get("namespace")
    if name and name != "*" and not SUBDOMAIN.fullmatch(name):
        yield invalid_cause(f"{field}.name", name, SUBDOMAIN_RULE)
    if namespace == "":
        yield required_cause(f"{field}.namespace", "must specify namespace for service account")
    elif namespace and not NAME_LABEL.fullmatch(namespace):
        yield invalid_cause(f"{field}.namespace", namespace, NAME_LABEL_RULE)


def _resource_rule(field: str, rule: Mapping[str, Any]) -> Iterator[Cause]:
    yield from _verbs(field, rule)
    yield from _wildcard(f"{field}.apiGroups", rule, "api groups")
    yield from _wildcard(f"{field}.resources", rule, "resources")
    namespaces = rule.get("namespaces") or []
    if not namespaces and not rule.get("clusterScope"):
        why = "resource rules that are not cluster scoped must supply at least one namespace"
        yield required_cause(f"{field}.namespaces", why)
    elif "*" in namespaces:
        yield from _wildcard(f"{field}.namespaces", rule, "namespaces")
    else:
        for index, namespace in enumerate(namespaces):
            if not NAME_LABEL.fullmatch(namespace):
                why = f"each member of this list must be '*' or a DNS-1123 label; {NAME_LABEL_RULE}"
                yield invalid_cause(f"{field}.namespaces[{index}]", namespace, why)


def _verbs(field: str, rule: Mapping[str, Any]) -> Iterator[Cause]:
    verbs = rule.get("verbs") or []
    if "*" in verbs:
        yield from _wildcard(f"{field}.verbs", rule, "verbs")
    elif not set(verbs).issubset(_VERBS):
        yield unsupported_cause(f"{field}.verbs", verbs, _VERBS)


def _urls(field: str, rule: Mapping[str, Any]) -> Iterator[Cause]:
    urls = rule.get("nonResourceURLs") or []
    if "*" in urls:
        yield from _wildcard(field, rule, "non-resource URLs")
        return
    for index, url in enumerate(urls):
        if why := _problem_of_url(url):
            yield invalid_cause(f"{field}[{index}]", url, why)


def _problem_of_url(url: str) -> str:
    if not url:
        return "must not be empty"
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    is_suffix = url.count("*") == 0 or (url.count("*") == 1 and url.endswith("/*"))
    return "" if is_suffix else "wildcard can only do suffix matching"


def _wildcard(field: str, rule: Mapping[str, Any], others: str) -> Iterator[Cause]:
    """Yield the violation of a wildcard that is not alone. The schema requires the list."""
    values = rule.get(field.rpartition(".")[2]) or []
    if "*" in values and len(values) > 1:
        yield invalid_cause(field, values, f"if '*' is present, must not specify other {others}")


def check_priority_level(obj: Object, _: Object | None) -> Iterator[Cause]:
    """Yield the violations of a PriorityLevelConfiguration."""
    spec, name = obj.get("spec") or {}, obj["metadata"].get("name")
    kind, limited, exempt = spec.get("type"), spec.get("limited"), spec.get("exempt")
    if (name == "exempt") != (kind == "Exempt"):
        why = "must be 'Exempt' if and only if `name` is 'exempt'"
        yield invalid_cause("spec.type", kind, why)
    if kind == "Exempt":
        if limited is not None:
            yield forbidden_cause("spec.limited", "must be nil if the type is not Limited")
        yield from _shares("spec.exempt", exempt or {})
    elif kind == "Limited":
        if exempt is not None:
            yield forbidden_cause("spec.exempt", "must be nil if the type is Limited")
        if limited is None:
            yield required_cause("spec.limited", "must not be empty when type is Limited")
        else:
            yield from _limited("spec.limited", limited)
    else:
        yield unsupported_cause("spec.type", kind, ("Exempt", "Limited"))
    compared = spec
    if name == "exempt":
        compared = {**spec, "exempt": MANDATORY["prioritylevelconfigurations", name]["exempt"]}
    yield from _mandatory("prioritylevelconfigurations", name, spec, compared)


def _shares(field: str, level: Mapping[str, Any]) -> Iterator[Cause]:
    shares, percent = level.get("nominalConcurrencyShares", 0), level.get("lendablePercent", 0)
    if shares < 0:
        place = f"{field}.nominalConcurrencyShares"
        yield invalid_cause(place, shares, "must be a non-negative integer")
    if not 0 <= percent <= 100:
        why = "must be between 0 and 100, inclusive"
        yield invalid_cause(f"{field}.lendablePercent", percent, why)


def _limited(field: str, level: Mapping[str, Any]) -> Iterator[Cause]:
    yield from _shares(field, level)
    borrowed = level.get("borrowingLimitPercent", 0)
    if borrowed < 0:
        why = "if specified, must be a non-negative integer"
        yield invalid_cause(f"{field}.borrowingLimitPercent", borrowed, why)
    response, place = level.get("limitResponse") or {}, f"{field}.limitResponse"
    kind, queuing = response.get("type"), response.get("queuing")
    if kind not in ("Queue", "Reject"):
        yield unsupported_cause(f"{place}.type", kind, ("Queue", "Reject"))
    elif kind == "Reject" and queuing is not None:
        why = "must be nil if limited.limitResponse.type is not Limited"
        yield forbidden_cause(f"{place}.queuing", why)
    elif kind == "Queue" and queuing is None:
        why = "must not be empty if limited.limitResponse.type is Limited"
        yield required_cause(f"{place}.queuing", why)
    elif queuing is not None:
        yield from _queuing(f"{place}.queuing", queuing)


def _queuing(field: str, queuing: Mapping[str, int]) -> Iterator[Cause]:
    queues, hand = queuing["queues"], queuing["handSize"]
    for name in ("queueLengthLimit", "queues", "handSize"):
        if queuing[name] <= 0:
            yield invalid_cause(f"{field}.{name}", queuing[name], "must be positive")
    if queues > _MAX_QUEUES:
        yield invalid_cause(f"{field}.queues", queues, f"must not be greater than {_MAX_QUEUES}")
    if hand > queues:
        why = f"should not be greater than queues ({queues})"
        yield invalid_cause(f"{field}.handSize", hand, why)
    elif hand > 0 and math.ceil(math.log2(queues) * hand) > _MAX_BITS:
        why = (
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater "
            f"than {_MAX_BITS}"
        )
        yield invalid_cause(f"{field}.handSize", hand, why)
