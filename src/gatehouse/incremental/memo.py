"""Cached results of queries, with what they depend on and what depends on them."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import TracebackType
from typing import Any

from gatehouse.incremental.snapshot import Key

MAX_HEIGHT = 100_000
"""Height that only queries reach which depend on themselves."""


class QueryCycleError(RuntimeError):
    """A query called itself, directly or through other queries."""


class TooEarlyError(BaseException):
    """A running query called one that may still change in this pass, and has to run after it.

    No query may catch it, so that no query ever sees results of two snapshots.
    """

    def __init__(self, height: int) -> None:
        self.height = height


class Memo:
    """A cached result with its dependencies and its callers."""

    __slots__ = (
        "arguments",
        "callers",
        "calls",
        "entry_callers",
        "error",
        "function",
        "has_result",
        "height",
        "reads",
        "stale",
        "state",
        "tables",
        "traceback",
        "value",
    )

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.has_result = False
        self.stale = True
        self.height = 0
        """Greater than the height of every memo in ``calls`` and ``tables``."""
        self.value: Any = None
        self.state: Any = None
        """The last result of the derivation of the query, with its inputs."""
        self.error: Exception | None = None
        self.traceback: TracebackType | None = None
        self.reads: tuple[Read, ...] = ()
        self.calls: tuple[Memo, ...] = ()
        self.callers: MemoGroup = ()
        self.tables: tuple[Memo, ...] = ()
        """Memos of tables of which it depends on some entries only."""
        self.entry_callers: MemoGroup = ()
        """Memos that depend on some entries of the result only."""

    def __lt__(self, other: Memo) -> bool:
        return self.height < other.height

    def failure(self) -> Exception:
        """Return the exception with its original traceback, because each raise extends the
        traceback. Call it only if there is an ``error``."""
        assert self.error is not None
        return self.error.with_traceback(self.traceback)


MemoGroup = tuple[Memo, ...] | set[Memo]
"""Distinct memos. A few are a tuple, because most groups have one, and a set has 216 bytes."""


def raise_height(memo: Memo, height: int) -> None:
    """Raise a memo to a greater height, and all that depend on it above it.

    Stale memos stay where they are: their dependencies may be others after their next run.
    """
    memo.height = height
    pending = [memo]
    while pending:
        callee = pending.pop()
        for caller in (*callee.callers, *callee.entry_callers):
            if caller.height <= callee.height and not caller.stale and caller is not memo:
                caller.height = callee.height + 1
                if caller.height > MAX_HEIGHT:
                    raise QueryCycleError(f"{caller.function.__name__} depends on itself")
                pending.append(caller)


Read = Key | tuple[Memo, Any]
"""An input, or an entry of a table: the memo of the table and the key."""

height_of, stale_of, value_of, error_of, callers_of = map(
    attrgetter, ("height", "stale", "value", "error", "callers")
)
"""Return an attribute of a memo."""


class Frame:
    """Dependencies of a running query, recorded so far."""

    __slots__ = ("calls", "derived", "last", "reads", "state", "tables")

    reads: dict[Read, None]
    tables: dict[Memo, None]
    calls: dict[Memo, None]

    def __init__(self, last: Any = None, state: Any = None) -> None:
        """``last``: the previous value of the query. ``state``: as in :class:`Memo`."""
        self.last = last
        self.state = state
        self.derived: Any = None
        """The state after this run."""
        self.reads, self.tables, self.calls = {}, {}, {}
