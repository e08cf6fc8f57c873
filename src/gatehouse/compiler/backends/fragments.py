"""Fragments: files or resources that are generated together, and the set of all of them.

A back end generates each fragment by a query, and collects the tables of fragments in an
:class:`Output`. The cost of a pass depends on the fragments that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gatehouse.compiler.backends.failures import unserved
from gatehouse.compiler.backends.source import GatewaySource
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin, gateway_origin
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V")
I = TypeVar("I", bound="FragmentItem")  # noqa: E741 - short for item
W = TypeVar("W", bound="OutputSet[Any]")
I_contra = TypeVar("I_contra", contravariant=True)

Need = tuple[str, str, Any]
"""Kind, name and description of something that several fragments may need. The name determines the
description."""


class FragmentItem(Protocol):
    """An item of a fragment: a resource or a file."""

    @property
    def key(self) -> Any:
        """Key of the item, unique in the output set."""


class OutputSet(Protocol[I_contra]):
    """All items of a gateway: a resource set or a file set."""

    def changed(self: T, new: Iterable[I_contra], gone: Iterable[Any]) -> T:
        """Return a copy with the items ``new`` and without the keys ``gone``."""


class Fragment(msgspec.Struct, Generic[I], frozen=True):
    """Items generated together, with their findings."""

    items: tuple[I, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()
    needs: frozenset[Need] = frozenset()


def failed_fragment(gateway: GatewaySource, _: Hashable, error: Exception) -> Fragment[Any]:
    """Return the fragment of a query that raised: a finding about its gateway."""
    return Fragment((), (unserved(gateway_origin(gateway.name), error),))


_own_origin: Callable[[Any], Origin] = attrgetter("origin")


def entry_fragment(
    ask: Ask,
    table: Callable[[Ask, GatewaySource], Table[K, V]],
    gateway: GatewaySource,
    key: K,
    generate: Callable[[V], Iterable[I]],
    origin: Callable[[V], Origin] = _own_origin,
) -> Fragment[I] | None:
    """Return the fragment of one entry of a table; None if it is absent or has no items.

    ``origin``: origin of the finding if ``generate`` raises.
    """
    entry = ask.entry(table, gateway, key=key)
    if entry is None:
        return None
    try:
        items = tuple(generate(entry))
    except Exception as error:
        return Fragment((), (unserved(origin(entry), error),))
    return Fragment(items) if items else None


class Output(msgspec.Struct, Generic[I, W], frozen=True):
    """The output set of a gateway, and its findings."""

    tables: tuple[Table[Any, Fragment[I]], ...]
    content: W
    findings: Table[tuple[int, Any], tuple[Unsupported, ...]]

    @property
    def unsupported(self) -> tuple[Unsupported, ...]:
        """All findings."""
        return tuple(finding for findings in self.findings.values() for finding in findings)


def collect(
    last: Output[I, W] | None, tables: tuple[Table[Any, Fragment[I]], ...], empty: W
) -> Output[I, W]:
    """Return the output set of the fragments in all tables.

    ``last`` is the previous result for the same tables, if there is one.
    """
    last = last or Output(tuple(Table() for _ in tables), empty, Table())
    old: dict[Any, I] = {}
    new: dict[Any, I] = {}
    findings: dict[tuple[int, Any], tuple[Unsupported, ...]] = {}
    gone: set[tuple[int, Any]] = set()
    for number, (before, after) in enumerate(zip(last.tables, tables, strict=True)):
        for key, was, now in before.diff(after):
            if was is not None:
                old |= {item.key: item for item in was.items}
                gone.add((number, key))
            if now is not None:
                new |= {item.key: item for item in now.items}
                if now.unsupported:
                    findings[number, key] = now.unsupported
    changed = [item for key, item in new.items() if old.get(key) != item]
    removed = old.keys() - new.keys()
    content = last.content.changed(changed, removed) if changed or removed else last.content
    return Output(tables, content, last.findings.updated(findings, gone - findings.keys()))
