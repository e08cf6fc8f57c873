"""Sets of fields, as trees in the very form of FieldsV1.

A key is a step: ``f:name`` a field, ``k:{…}`` the item of an associative list with these keys,
``v:…`` an item of a set. An empty tree says that the path that leads to it belongs to the set; a
tree with steps says so of itself with the step ``.``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

Tree = dict[str, Any]

SELF = "."


def contains_self(tree: Tree) -> bool:
    """Whether the path that leads to a tree belongs to the set."""
    return not tree or SELF in tree


def tree(children: Tree, *, member: bool) -> Tree | None:
    """Make a tree of steps; None if nothing belongs to the set."""
    if not children:
        return {} if member else None
    return {SELF: {}, **children} if member else children


def union(one: Tree, other: Tree) -> Tree:
    """Give what is in either of two sets; their roots are never members."""
    return _union(one, other)


def _union(one: Tree, other: Tree) -> Tree:
    if one is other or not other:
        return one if one and (other is one or SELF in one) else _with_self(one)
    if not one:
        return _with_self(other)
    found = dict(one)
    for step, inner in other.items():
        mine = found.get(step)
        found[step] = inner if mine is None or step == SELF else _union(mine, inner)
    return found


def _with_self(found: Tree) -> Tree:
    return {SELF: {}, **found} if found and SELF not in found else found


def join(one: Tree, other: Tree) -> Tree:
    """Give the union of two whole sets, either of which may be empty."""
    if not one:
        return other
    return _union(one, other) if other else one


def subtract(one: Tree, other: Tree) -> Tree | None:
    """Give what is in one set and not in the other; None for nothing."""
    member = contains_self(one) and not contains_self(other)
    children: Tree = {}
    for step, inner in one.items():
        if step == SELF:
            continue
        theirs = other.get(step)
        left = inner if theirs is None else subtract(inner, theirs)
        if left is not None:
            children[step] = left
    return tree(children, member=member)


def common(one: Tree, other: Tree) -> Tree | None:
    """Give what is in both sets; None for nothing."""
    member = contains_self(one) and contains_self(other)
    children: Tree = {}
    for step, inner in one.items():
        theirs = other.get(step) if step != SELF else None
        if theirs is not None:
            found = common(inner, theirs)
            if found is not None:
                children[step] = found
    return tree(children, member=member)


def difference(one: Tree, other: Tree) -> Tree:
    """Give :func:`minus` of two whole sets, either of which may be empty."""
    if not one or not other:
        return one
    return subtract({SELF: {}, **one}, {SELF: {}, **other}) or {}


def intersection(one: Tree, other: Tree) -> Tree:
    """Give :func:`common` of two whole sets, either of which may be empty."""
    if not one or not other:
        return {}
    found = common({"f:": one}, {"f:": other})
    return found["f:"] if found else {}


def paths(found: Tree, prefix: str = "") -> Iterator[str]:
    """Give every path of a set as messages show it."""
    for step, inner in found.items():
        if step == SELF:
            continue
        path = prefix + _shown(step)
        if contains_self(inner):
            yield path
        yield from paths(inner, path)


def _shown(step: str) -> str:
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


def sorted_tree(found: Tree) -> Tree:
    """Give a set with its steps in the order in which Kubernetes writes them."""
    return {step: sorted_tree(found[step]) for step in sorted(found)}
