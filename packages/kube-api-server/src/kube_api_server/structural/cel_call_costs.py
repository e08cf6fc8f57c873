"""Costs of the calls in CEL rules, from the sizes of their arguments.

They are those of CEL's and Kubernetes' Go implementations, so that both servers accept the same
rules: https://kubernetes.io/docs/reference/using-api/cel/#resource-constraints
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from kube_api_server.structural.cel_ranges import (
    EXPRESSION,
    LARGEST_COST,
    NOTHING,
    ONE,
    TRAVERSAL,
    TRAVERSAL_AND_COPY,
    UNKNOWN_RANGE,
    EntrySizes,
    Range,
)

_FORMAT_EXPRESSION = 128
"""Maximum length of the regular expression of a named format."""

_ADDRESS_BYTES = Range(4, 16)


class Operand(msgspec.Struct, frozen=True):
    """An argument of a call."""

    cost: Range
    size: Range = UNKNOWN_RANGE
    entries: EntrySizes | None = None
    items: Range | None = None
    """Sizes of the items of a list; None for other values."""
    has_texts: bool = False
    """True for a list of strings or bytes."""
    literal: int | None = None
    """Value of an integer literal."""
    function: str = ""
    """Function whose result this is."""


class SizedCall(msgspec.Struct, frozen=True):
    """A call with the operands whose sizes determine its cost."""

    arguments: Sequence[Operand]
    target: Operand | None = None

    @property
    def all(self) -> tuple[Operand, ...]:
        """The target, if there is one, and the arguments."""
        return (*filter(None, (self.target,)), *self.arguments)


class Estimate(msgspec.Struct, frozen=True):
    """Cost of a call without its operands, and the sizes of its result."""

    cost: Range
    size: Range | None = None
    entries: EntrySizes | None = None


_Rule = Callable[[SizedCall], Estimate | None]


def call_cost(function: str, overload: str, call: SizedCall) -> Estimate:
    """Return the cost of a call, with that of its arguments and without that of its target."""
    if overload in _BRANCHES:
        return _BRANCHES[overload](call)
    for rules, name in ((_FUNCTIONS, function), (_OVERLOADS, overload)):
        rule = rules.get(name)
        estimate = rule(call) if rule is not None else None
        if estimate is not None:
            break
    else:
        estimate = Estimate(ONE)
    return msgspec.structs.replace(estimate, cost=_total(call.arguments) + estimate.cost)


def _total(operands: Sequence[Operand]) -> Range:
    """Return the sum of the costs of operands."""
    return sum((operand.cost for operand in operands), NOTHING)


def _logical(call: SizedCall) -> Estimate:
    left, right = (operand.cost for operand in call.arguments)
    return Estimate(Range(left.least, (left + right).most))


def _conditional(call: SizedCall) -> Estimate:
    condition, first, second = call.arguments
    entries = first.entries.union(second.entries) if first.entries is not None else None
    cost = condition.cost + first.cost.union(second.cost)
    return Estimate(cost, first.size.union(second.size), entries)


def _read(call: SizedCall) -> Estimate:
    """Return the cost of a function that reads its operand once."""
    return Estimate(call.all[0].size.scaled(TRAVERSAL))


def _converted(call: SizedCall) -> Estimate:
    size = call.all[0].size
    return Estimate(size.scaled(TRAVERSAL), size)


def _canonical(call: SizedCall) -> Estimate:
    return Estimate(call.all[0].size.scaled(TRAVERSAL_AND_COPY))


def _compared_items(call: SizedCall) -> Estimate | None:
    target = call.target
    if target is None:
        return None
    if target.items is None:
        return Estimate(target.size.scaled(TRAVERSAL))
    item = ONE + target.items.scaled(TRAVERSAL) if target.has_texts else ONE
    return Estimate(target.size * item)


def _replace(call: SizedCall) -> Estimate | None:
    if call.target is None or len(call.arguments) < 2:
        return None
    size, old, new = call.target.size, call.arguments[0].size, call.arguments[1].size
    if old.least == 0:
        # An empty text is replaced around each character.
        most = (min(size.most + 1, LARGEST_COST), size.most)
    elif new.most <= old.least:
        most = (0, size.most)
    else:
        most = (math.ceil(size.most / old.least), 0)
    if old.most == 0:
        least = (min(size.least + 1, LARGEST_COST), size.least)
    elif old.most <= new.least:
        least = (0, size.least)
    else:
        least = (math.ceil(size.least / old.most), 0)
    count, retained = (Range(*pair) for pair in zip(least, most, strict=True))
    return Estimate(size.scaled(TRAVERSAL_AND_COPY), count * new + retained)


def _split(call: SizedCall) -> Estimate | None:
    if call.target is None:
        return None
    size, limit = call.target.size, call.arguments[1].literal if len(call.arguments) > 1 else None
    most = size.most if limit is None else limit % (LARGEST_COST + 1)
    return Estimate(size.scaled(TRAVERSAL_AND_COPY), Range(0, most))


def _join(call: SizedCall) -> Estimate | None:
    if call.target is None:
        return None
    number, size = call.target.size, NOTHING
    if call.target.items is not None:
        size = number * call.target.items
    if call.arguments:
        separators = Range(max(number.least - 1, 0), max(number.most - 1, 0))
        size += call.arguments[0].size * separators
    return Estimate(size.scaled(TRAVERSAL), size)


def _find(call: SizedCall) -> Estimate | None:
    matched = _matches(call)
    text = call.all[0].size
    return msgspec.structs.replace(matched, size=Range(0, text.most)) if matched else None


def _matches(call: SizedCall) -> Estimate | None:
    if len(call.all) != 2:
        return None
    text, pattern = (operand.size for operand in call.all)
    # One more, so that an expensive expression costs something for an empty text, too.
    return Estimate((text + ONE).scaled(TRAVERSAL) * pattern.scaled(EXPRESSION))


def _contains(call: SizedCall) -> Estimate | None:
    if len(call.all) != 2:
        return None
    text, part = (operand.size.scaled(TRAVERSAL) for operand in call.all)
    return Estimate(text * part)


def _contains_address(call: SizedCall) -> Estimate:
    cost = (_ADDRESS_BYTES + _ADDRESS_BYTES).scaled(TRAVERSAL)
    other = call.arguments[-1]
    parsed = NOTHING if other.function in _MAKERS else other.size.scaled(TRAVERSAL)
    return Estimate(cost + parsed)


def _validate(call: SizedCall) -> Estimate:
    cost = call.arguments[0].size.scaled(TRAVERSAL)
    return Estimate(cost.scaled(_FORMAT_EXPRESSION * EXPRESSION))


def _in_list(call: SizedCall) -> Estimate:
    return Estimate(call.arguments[1].size)


def _added(call: SizedCall) -> Estimate:
    left, right = call.arguments
    size = left.size + right.size
    entries = left.entries.union(right.entries) if left.entries is not None else None
    return Estimate(size.scaled(TRAVERSAL), size, entries)


def _added_lists(call: SizedCall) -> Estimate:
    return msgspec.structs.replace(_added(call), cost=ONE)


def _compared(call: SizedCall) -> Estimate:
    left, right = call.arguments
    if left.function in _MAKERS and right.function in _MAKERS:
        return Estimate(ONE)
    most = min(left.size.most, right.size.most)
    return Estimate(Range(1 if most else 0, most).scaled(TRAVERSAL))


def _start(call: SizedCall) -> Estimate:
    return Estimate(call.arguments[0].size.scaled(TRAVERSAL))


def _to_bytes(call: SizedCall) -> Estimate:
    size = call.arguments[0].size
    return Estimate(size.scaled(TRAVERSAL), Range(size.least, min(size.most * 4, LARGEST_COST)))


def _to_text(call: SizedCall) -> Estimate:
    size = call.arguments[0].size
    return Estimate(size.scaled(TRAVERSAL), Range(size.least // 4, size.most))


def _quoted(call: SizedCall) -> Estimate:
    size = call.arguments[0].size
    quoted = Range(size.least + 2, min(size.most * 2 + 2, LARGEST_COST))
    return Estimate(size.scaled(TRAVERSAL), quoted)


_MAKERS = frozenset({"ip", "cidr", "quantity"})
"""Functions whose results are small values."""

_BRANCHES: dict[str, Callable[[SizedCall], Estimate]] = {
    "logical_and": _logical,
    "logical_or": _logical,
    "conditional": _conditional,
}

_FUNCTIONS: dict[str, _Rule] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _compared_items),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _converted),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("ip", "cidr", "quantity", "isIP", "isCIDR", "isQuantity"), _read),
    "ip.isCanonical": _canonical,
    "containsIP": _contains_address,
    "validate": _validate,
}

_OVERLOADS: dict[str, _Rule] = {
    "string_format": _read,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_text,
    "strings_quote": _quoted,
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _start),
    "in_list": _in_list,
    **dict.fromkeys(("matches", "matches_string"), _matches),
    "contains_string": _contains,
    **dict.fromkeys(("add_string", "add_bytes"), _added),
    "add_list": _added_lists,
    **dict.fromkeys(("equals", "not_equals"), _compared),
    **{
        f"{operator}_{kind}": _compared
        for operator in ("less", "greater", "less_equals", "greater_equals")
        for kind in ("string", "bytes")
    },
}
"""Rules of the overloads whose cost depends on sizes. All other calls cost 1."""
