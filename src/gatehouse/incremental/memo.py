"""Cached results of queries, with what they depend on and what depends on them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import attrgetter
from types import TracebackType
from typing import Any

from gatehouse.incremental.snapshot import Key


class Memo:
    """A cached result with its dependencies and its callers."""

    __slots__ = (
        "argument",
        "callers",
        "calls",
        "entry_callers",
        "error",
        "function",
        "has_result",
        "height",
        "reads",
        "stale",
        "tables",
        "traceback",
        "value",
    )

    def __init__(self, function: Callable[[Any, Any], Any], argument: Hashable) -> None:
        self.function = function
        self.argument = argument
        self.has_result = False
        self.stale = True
        self.height = 0
        """Greater than the height of every memo in ``calls`` and ``tables``."""
        self.value: Any = None
        self.error: Exception | None = None
        self.traceback: TracebackType | None = None
        self.reads: frozenset[Read] = frozenset()
        self.calls: tuple[Memo, ...] = ()
        self.callers: set[Memo] = set()
        self.tables: tuple[Memo, ...] = ()
        """Memos of tables of which it depends on some entries only."""
        self.entry_callers: set[Memo] = set()
        """Memos that depend on some entries of the result only."""

    def __lt__(self, other: Memo) -> bool:
        return self.height < other.height

    def failure(self) -> Exception | None:
        """Return the exception with its original traceback, because each raise extends the
        traceback."""
        return self.error.with_traceback(self.traceback) if self.error is not None else None


Read = Key | tuple[Memo, Any]
"""An input, or an entry of a table: the memo of the table and the key."""

height_of = attrgetter("height")
"""Returns the height of a memo."""


class Frame:
    """Dependencies of a running query, recorded so far."""

    __slots__ = ("calls", "last", "reads", "tables")

    def __init__(self, last: Any = None) -> None:
        """``last``: the previous value of the query."""
        self.last = last
        self.reads: set[Read] = set()
        self.tables: dict[Memo, None] = {}
        self.calls: dict[Memo, None] = {}
