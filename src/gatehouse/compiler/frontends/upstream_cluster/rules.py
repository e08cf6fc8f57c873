"""Translation of the rules of dispatch policies to IR."""

from __future__ import annotations

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.upstream_cluster import name_sets
from gatehouse.compiler.ir.kube_apiserver import ANY, DispatchRule, Names


class ReadRule(msgspec.Struct, frozen=True):
    """Translation of a rule."""

    rules: tuple[DispatchRule, ...]
    """IR rules, of which any must match; empty if the rule is rejected."""
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def translate_rule(rule: api.DispatchRuleSpec) -> ReadRule:
    """Translate a rule. Its problems begin with the name of a field."""
    readings = {
        "verbs": name_sets.parse_names(name_sets.VERBS, rule.verbs),
        "groups": name_sets.parse_names(name_sets.GROUPS, rule.api_groups),
        "resources": name_sets.parse_names(name_sets.RESOURCES, rule.resources),
        "names": name_sets.parse_names(name_sets.NAMES, rule.resource_names),
        "user_groups": name_sets.parse_names(name_sets.USER_GROUPS, rule.user_groups),
        "paths": name_sets.parse_names(name_sets.PATHS, rule.non_resource_urls),
    }
    users, users_reading = _users(rule)
    all_readings = (*readings.values(), users_reading)
    problems = [problem for all_reading in all_readings for problem in all_reading.problems]
    problems += _incomplete(rule)
    names = {
        field: reading.names for field, reading in readings.items() if reading.names is not None
    }
    if len(names) < len(readings) or not users or not _could_match(rule):
        return ReadRule((), tuple(problems))
    differences = tuple(one for all_reading in all_readings for one in all_reading.differences)
    compiled = tuple(DispatchRule(users=user, **names) for user in users)
    return ReadRule(compiled, tuple(problems), differences)


def _could_match(rule: api.DispatchRuleSpec) -> bool:
    return bool(rule.verbs and ((rule.api_groups and rule.resources) or rule.non_resource_urls))


def _incomplete(rule: api.DispatchRuleSpec) -> list[str]:
    problems = [] if rule.verbs else ["verbs: must not be empty"]
    if rule.non_resource_urls or (rule.api_groups and rule.resources):
        return problems
    if not rule.api_groups and not rule.resources:
        return [*problems, "resources or nonResourceURLs must be set"]
    missing = "apiGroups" if not rule.api_groups else "resources"
    return [*problems, f"{missing}: must not be empty"]


def _users(rule: api.DispatchRuleSpec) -> tuple[tuple[Names, ...], name_sets.ParsedField]:
    """Return the users of ``users`` and ``serviceAccounts``; empty if the rule is rejected.

    Exclusions and ServiceAccounts do not fit in one set, so that there can be two.
    """
    accounts, problems = _accounts(rule)
    users_reading = name_sets.parse_names(name_sets.USERS, rule.users)
    users_reading = msgspec.structs.replace(
        users_reading, problems=(*users_reading.problems, *problems)
    )
    own = users_reading.names
    if not rule.service_accounts:
        return ((own,) if own is not None else ()), users_reading
    if not rule.users:
        return ((Names(accounts),) if accounts else ()), users_reading
    if own is None:
        # Invalid exclusions must not result in a rule about other users.
        plain = not rule.users[0].startswith(name_sets.INVERTED)
        return ((Names(accounts),) if accounts and plain else ()), users_reading
    if own == ANY or not accounts:
        return (own,), users_reading
    if own.others:
        return (own, Names(accounts)), users_reading
    merged = tuple(sorted({*own.exact, *accounts}))
    return (msgspec.structs.replace(own, exact=merged),), users_reading


def _accounts(rule: api.DispatchRuleSpec) -> tuple[tuple[str, ...], list[str]]:
    accounts, problems = set(), []
    for index, account in enumerate(rule.service_accounts):
        if account.name and account.namespace:
            accounts.add(f"system:serviceaccount:{account.namespace}:{account.name}")
        else:
            problems.append(f"serviceAccounts[{index}]: ignored because name or namespace is empty")
    return tuple(sorted(accounts)), problems
