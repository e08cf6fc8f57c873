"""Collections of a configuration in which some entries are those of a good one. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any, TypeVar

from gatehouse.incremental.table import Table, Values

T = TypeVar("T")


def mixed_entries(
    good: Collection[T],
    new: Collection[T],
    name: Callable[[T], Hashable],
    choose: Callable[[T | None, T], T | None],
) -> Collection[T]:
    """Return ``new`` with the choice between old and new for each entry that differs."""
    if isinstance(new, Values):
        if isinstance(good, Values):
            before = good.table
        else:
            named = {name(entry): entry for entry in good}
            items = ((key, named.get(name(entry))) for key, entry in new.table.items())
            before = Table((key, old) for key, old in items if old is not None)
        differing = before.diff(new.table)
        chosen = {key: choose(old, entry) for key, old, entry in differing if entry is not None}
        gone = [key for key, entry in chosen.items() if entry is None]
        return new.table.updated({k: v for k, v in chosen.items() if v is not None}, gone).values()
    named = {name(entry): entry for entry in good}
    choices = (choose(named.get(name(entry)), entry) for entry in new)
    return tuple(entry for entry in choices if entry is not None)


def united_credentials(
    good: tuple[Any, ...], new: tuple[Any, ...], held: set[str]
) -> tuple[Any, ...]:
    """Return the credentials of both configurations without those that are held back."""
    by_name = {entry.name: entry for entry in (*good, *new) if entry.name not in held}
    return tuple(by_name[name] for name in sorted(by_name))
