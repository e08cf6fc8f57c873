"""From a rule of a policy to rules of the IR, or to why it is refused."""

from __future__ import annotations

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.upstream_cluster import name_sets
from gatehouse.compiler.ir.kube_apiserver import ANY, Names, Rule


class ReadRule(msgspec.Struct, frozen=True):
    """What a rule means."""

    rules: tuple[Rule, ...]
    """Any of them; none: the rule is refused."""
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def read(rule: api.Rule) -> ReadRule:
    """Give the meaning of a rule. Its problems begin with the name of a field."""
    readings = {
        "verbs": name_sets.read(name_sets.VERBS, rule.verbs),
        "groups": name_sets.read(name_sets.GROUPS, rule.api_groups),
        "resources": name_sets.read(name_sets.RESOURCES, rule.resources),
        "names": name_sets.read(name_sets.NAMES, rule.resource_names),
        "user_groups": name_sets.read(name_sets.USER_GROUPS, rule.user_groups),
        "paths": name_sets.read(name_sets.PATHS, rule.non_resource_urls),
    }
    users, reading = _users(rule)
    every = (*readings.values(), reading)
    problems = [problem for each in every for problem in each.problems]
    problems += _incomplete(rule)
    found = {field: each.names for field, each in readings.items() if each.names is not None}
    if len(found) < len(readings) or not users or not _could_match(rule):
        return ReadRule((), tuple(problems))
    differences = tuple(one for each in every for one in each.differences)
    made = tuple(Rule(users=each, **found) for each in users)
    return ReadRule(made, tuple(problems), differences)


def _could_match(rule: api.Rule) -> bool:
    return bool(rule.verbs and ((rule.api_groups and rule.resources) or rule.non_resource_urls))


def _incomplete(rule: api.Rule) -> list[str]:
    found = [] if rule.verbs else ["verbs is empty, so that nothing matches"]
    if rule.non_resource_urls or (rule.api_groups and rule.resources):
        return found
    if not rule.api_groups and not rule.resources:
        return [*found, "neither resources nor nonResourceURLs are given, so that nothing matches"]
    missing = "apiGroups" if not rule.api_groups else "resources"
    return [*found, f"{missing} is empty, so that nothing matches"]


def _users(rule: api.Rule) -> tuple[tuple[Names, ...], name_sets.Reading]:
    """Give who is meant, by ``users`` or by ``serviceAccounts``; nobody: the rule is refused.

    Where exclusions meet ServiceAccounts, one set cannot hold both, and there is a second one.
    """
    accounts, problems = _accounts(rule)
    reading = name_sets.read(name_sets.USERS, rule.users)
    reading = msgspec.structs.replace(reading, problems=(*reading.problems, *problems))
    own = reading.names
    if not rule.service_accounts:
        return ((own,) if own is not None else ()), reading
    if not rule.users:
        return ((Names(accounts),) if accounts else ()), reading
    if own is None:
        # Exclusions that make no sense must not become a rule about somebody else.
        plain = not rule.users[0].startswith(name_sets.INVERTED)
        return ((Names(accounts),) if accounts and plain else ()), reading
    if own == ANY or not accounts:
        return (own,), reading
    if own.others:
        return (own, Names(accounts)), reading
    merged = tuple(sorted({*own.exact, *accounts}))
    return (msgspec.structs.replace(own, exact=merged),), reading


def _accounts(rule: api.Rule) -> tuple[tuple[str, ...], list[str]]:
    found, problems = set(), []
    for index, account in enumerate(rule.service_accounts):
        if account.name and account.namespace:
            found.add(f"system:serviceaccount:{account.namespace}:{account.name}")
        else:
            problems.append(f"serviceAccounts[{index}] is ignored without name and namespace")
    return tuple(sorted(found)), problems
