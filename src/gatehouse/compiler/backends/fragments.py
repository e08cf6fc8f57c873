"""Fragments: files or resources that are generated together, and the set of all of them.

A back end generates each fragment by a query, and collects the tables of fragments in an
:class:`Output`. The cost of a pass depends on the fragments that changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gatehouse.compiler.backends.failures import unserved
from gatehouse.compiler.backends.source import Source
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import of_gateway
from gatehouse.incremental.table import Table

T = TypeVar("T")
I = TypeVar("I", bound="Item")  # noqa: E741 - short for item
W = TypeVar("W", bound="OutputSet[Any]")
I_contra = TypeVar("I_contra", contravariant=True)

Need = tuple[str, str, Any]
"""Kind, name and description of something that several fragments may need. The name determines the
description."""


class Item(Protocol):
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


def failed(which: tuple[Source, Hashable], error: Exception) -> Fragment[Any]:
    """Return the fragment of a query that raised: a finding about the gateway ``which[0]``."""
    return Fragment((), (unserved(of_gateway(which[0].name), error),))


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
