"""Sets of fields, as trees in the form of FieldsV1.

A key is a path step: `f:name` a field, `k:{…}` the item of an associative list with these keys,
`v:…` an item of a set. An empty tree means that its path is a member of the set. A tree with steps
has the step `.` if its path is a member.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

Tree = dict[str, Any]

SELF = "."


def contains_self(tree: Tree) -> bool:
    """Return whether the path of a tree is a member of the set."""
    return not tree or SELF in tree


def tree(children: Tree, *, member: bool) -> Tree | None:
    """Build a tree of steps; None if the set is empty."""
    if not children:
        return {} if member else None
    return {SELF: {}, **children} if member else children


def union(one: Tree, other: Tree) -> Tree:
    """Return the union of two sets. Their roots are never members."""
    return _union(one, other)


def _union(one: Tree, other: Tree) -> Tree:
    if one is other or not other:
        return one if one and (other is one or SELF in one) else _with_self(one)
    if not one:
        return _with_self(other)
    result = dict(one)
    for step, inner in other.items():
        mine = result.get(step)
        result[step] = inner if mine is None or step == SELF else _union(mine, inner)
    return result


def _with_self(members: Tree) -> Tree:
    return {SELF: {}, **members} if members and SELF not in members else members


def join(one: Tree, other: Tree) -> Tree:
    """Return the union of two complete sets, either of which may be empty."""
    if not one:
        return other
    return _union(one, other) if other else one


def subtract(one: Tree, other: Tree) -> Tree | None:
    """Return the members of one set that are not in the other; None if there are none."""
    member = contains_self(one) and not contains_self(other)
    children: Tree = {}
    for step, inner in one.items():
        if step == SELF:
            continue
        counterpart = other.get(step)
        left = inner if counterpart is None else subtract(inner, counterpart)
        if left is not None:
            children[step] = left
    return tree(children, member=member)


def _common(one: Tree, other: Tree) -> Tree | None:
    """Return the members of both sets; None if there are none."""
    member = contains_self(one) and contains_self(other)
    children: Tree = {}
    for step, inner in one.items():
        counterpart = other.get(step) if step != SELF else None
        if counterpart is not None:
            common = _common(inner, counterpart)
            if common is not None:
                children[step] = common
    return tree(children, member=member)


def set_difference(one: Tree, other: Tree) -> Tree:
    """Return :func:`subtract` of two complete sets, either of which may be empty."""
    if not one or not other:
        return one
    return subtract({SELF: {}, **one}, {SELF: {}, **other}) or {}


def intersection(one: Tree, other: Tree) -> Tree:
    """Return :func:`_common` of two complete sets, either of which may be empty."""
    if not one or not other:
        return {}
    common = _common({"f:": one}, {"f:": other})
    return common["f:"] if common else {}


def paths(members: Tree, prefix: str = "") -> Iterator[str]:
    """Yield every path of a set in the form of messages."""
    for step, inner in members.items():
        if step == SELF:
            continue
        path = prefix + _format_step(step)
        if contains_self(inner):
            yield path
        yield from paths(inner, path)


def _format_step(step: str) -> str:
    kind, text = step[:2], step[2:]
    if kind == "f:":
        return f".{text}"
    value = msgspec.json.decode(text)
    if kind == "k:":
        keys = ",".join(
            f"{key}={msgspec.json.encode(item).decode()}" for key, item in value.items()
        )
        return f"[{keys}]"
    return f"[={text}]" if kind == "v:" else f"[{text}]"


def sorted_tree(members: Tree) -> Tree:
    """Return a set with its steps in the order of Kubernetes."""
    return {step: sorted_tree(members[step]) for step in sorted(members)}
