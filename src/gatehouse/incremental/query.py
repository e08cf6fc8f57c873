"""Incremental computation with recorded reads: the engine of every compile pass.

A *query* is a plain top-level function ``f(ask, argument) -> value``. It reads inputs only through
``ask.read(key)`` and results of other queries only through ``ask(function, argument)``. The engine
records these dependencies, so that after a change only the dependent queries run again. If a query
runs again and returns an equal value, the old object is kept and its callers do not run at all.
Arguments are small hashable values; values are frozen and comparable. A query may also run for a
deleted object, if its caller has not been run again yet. It must then return an empty result.

Large collections are a :class:`gatehouse.incremental.table.Table`. :meth:`Ask.map` runs a query for
every value of a table, and :mod:`gatehouse.incremental.grouping` derives tables from tables. The
cost of both depends on the size of the change.

The same functions on an empty :class:`Engine` are the full compile. It is the oracle of the
property tests: incremental and full results must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from heapq import heappop, heappush
from types import TracebackType
from typing import Any, Generic, TypeVar

from gatehouse.incremental.snapshot import Index, Key, Snapshot
from gatehouse.incremental.table import Chunk, Table

__all__ = ["Ask", "Engine", "IdentityMemo", "Index", "Key", "QueryCycleError", "Snapshot"]

A = TypeVar("A", bound=Hashable)
V = TypeVar("V")
K = TypeVar("K")


class QueryCycleError(RuntimeError):
    """A query called itself, directly or through other queries."""


class _Memo:
    """A cached result with its dependencies and its callers."""

    __slots__ = (
        "argument",
        "callers",
        "calls",
        "error",
        "function",
        "has_result",
        "height",
        "reads",
        "stale",
        "traceback",
        "value",
    )

    def __init__(self, function: Callable[[Ask, Any], Any], argument: Hashable) -> None:
        self.function = function
        self.argument = argument
        self.has_result = False
        self.stale = True
        self.height = 0
        """Greater than the height of every memo in ``calls``."""
        self.value: Any = None
        self.error: Exception | None = None
        self.traceback: TracebackType | None = None
        self.reads: frozenset[Key] = frozenset()
        self.calls: tuple[_Memo, ...] = ()
        self.callers: set[_Memo] = set()

    def __lt__(self, other: _Memo) -> bool:
        return self.height < other.height

    def failure(self) -> Exception | None:
        """Return the exception with its original traceback, because each raise extends the
        traceback."""
        return self.error.with_traceback(self.traceback) if self.error is not None else None


class _Frame:
    __slots__ = ("calls", "last", "reads")

    def __init__(self, last: Any = None) -> None:
        self.last = last
        self.reads: set[Key] = set()
        self.calls: dict[_Memo, None] = {}


class Ask:
    """Read access for queries; see the module's docstring."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, key: Key) -> Any:
        """Read an input: the object at ``key`` (None if absent) or the keys of an index bucket."""
        return self._engine._read(key)

    def last(self) -> Any:
        """Return the previous value of the running query, or None.

        Use it only to compute the same result faster: see :mod:`gatehouse.incremental.grouping`.
        """
        return self._engine._frames[-1].last

    def __call__(self, function: Callable[[Ask, A], V], argument: A) -> V:
        """Return ``function(ask, argument)``, from the cache if nothing it depends on has changed.

        An exception is cached too: it is raised again until a dependency of the query has changed.
        """
        memo = self._engine._query(function, argument)
        if memo.error is not None:
            raise memo.failure() or memo.error
        value: V = memo.value
        return value

    def each(
        self,
        function: Callable[[Ask, A], V],
        arguments: Iterable[A],
        failed: Callable[[A, Exception], V] | None = None,
    ) -> list[V]:
        """Return the result of ``function`` for every argument. Unchanged arguments cost little.

        ``failed`` returns the value for an argument whose query raised. Without it, the first
        exception is raised.
        """
        arguments = tuple(arguments)
        memos = self._engine._queries(function, arguments)
        values: list[V] = [memo.value for memo in memos]
        for index, memo in enumerate(memos):
            if memo.error is not None:
                error = memo.failure() or memo.error
                if failed is None:
                    raise error
                values[index] = failed(arguments[index], error)
        return values

    def map(
        self,
        function: Callable[[Ask, A], V | None],
        table: Table[K, A],
        failed: Callable[[A, Exception], V | None] | None = None,
    ) -> Table[K, V]:
        """Return a table of the results of ``function`` for every value, without those that are
        None.

        Each chunk of the table is a query of its own, so that only chunks with a change run again.
        ``failed``: as in :meth:`each`.
        """
        chunks = [(function, chunk, failed) for chunk in table.chunks]
        return Table.joined(self.each(_map_chunk, chunks))


def _map_chunk(ask: Ask, argument: tuple[Any, Chunk[Any, Any], Any]) -> Chunk[Any, Any]:
    function, chunk, failed = argument
    values = ask.each(function, chunk.stored, failed)
    keys = [key for key, value in zip(chunk.ordered, values, strict=True) if value is not None]
    return Chunk(tuple(keys), tuple([value for value in values if value is not None]))


class Engine:
    """A snapshot and the cached results of queries over it.

    A change marks the queries that read it as stale. Stale queries run again before the next result
    is returned, from the bottom up. Their callers run again only if the value differs, so the cost
    of a pass depends on what really changed.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.runs = 0
        """Number of query bodies that have run so far, for tests and metrics."""
        self._memos: dict[Callable[[Ask, Any], Any], dict[Hashable, _Memo]] = {}
        self._readers: dict[Key, set[_Memo]] = {}
        self._stale: list[tuple[int, _Memo]] = []
        """A heap by height."""
        self._roots: dict[_Memo, None] = {}
        """Memos that the last pass called directly."""
        self._orphans: dict[_Memo, None] = {}
        """Memos that lost their last caller."""
        self._frames: list[_Frame] = []
        self._running: set[_Memo] = set()
        self._ask = Ask(self)

    def commit(self, changes: Mapping[Key, Any]) -> frozenset[Key]:
        """Apply changes to the snapshot (see :meth:`Snapshot.apply`)."""
        changed = self.snapshot.apply(changes)
        for key in changed:
            self._mark(self._readers.get(key, ()))
        return changed

    def reads(self, key: Key) -> bool:
        """Return whether any cached result depends on ``key``."""
        return key in self._readers

    @contextmanager
    def compile(self) -> Iterator[Ask]:
        """Open one pass over the snapshot. At its end, results that the pass did not use are
        dropped.

        A pass that raises drops nothing.
        """
        root = _Frame()
        self._frames = [root]
        self._running.clear()
        try:
            yield self._ask
        except BaseException:
            self._roots.update(root.calls)
            raise
        for memo in self._roots.keys() - root.calls.keys():
            self._orphans[memo] = None
        self._roots = root.calls
        self._drop_orphans()

    def _mark(self, memos: Iterable[_Memo]) -> None:
        for memo in memos:
            if not memo.stale:
                memo.stale = True
                heappush(self._stale, (memo.height, memo))

    def _run_stale(self) -> None:
        """Run the stale memos, the lowest first, so that their callees are up to date.

        A memo that gains a new dependency may have to run once more.
        """
        while self._stale:
            _, memo = heappop(self._stale)
            if memo.stale and (memo.callers or memo in self._roots):
                self._run(memo)

    def _drop_orphans(self) -> None:
        """Drop the memos without callers, and those that only they called."""
        while self._orphans:
            memo, _ = self._orphans.popitem()
            if memo.callers or memo in self._roots:
                continue
            if self._memos[memo.function].get(memo.argument) is memo:
                del self._memos[memo.function][memo.argument]
            self._set_dependencies(memo, frozenset(), ())

    def _set_dependencies(
        self, memo: _Memo, reads: frozenset[Key], calls: tuple[_Memo, ...]
    ) -> None:
        """Replace the dependencies of ``memo``."""
        for key in memo.reads - reads:
            readers = self._readers[key]
            readers.discard(memo)
            if not readers:
                del self._readers[key]
        for key in reads - memo.reads:
            self._readers.setdefault(key, set()).add(memo)
        if calls != memo.calls:
            before, after = set(memo.calls), set(calls)
            for gone in before - after:
                gone.callers.discard(memo)
                if not gone.callers:
                    self._orphans[gone] = None
            for new in after - before:
                new.callers.add(memo)
        memo.reads, memo.calls = reads, calls
        memo.height = 1 + max([call.height for call in calls], default=0)

    def _read(self, key: Key) -> Any:
        self._frames[-1].reads.add(key)
        return self.snapshot.get(key)

    def _query(self, function: Callable[[Ask, Any], Any], argument: Hashable) -> _Memo:
        if self._stale and len(self._frames) == 1:
            self._run_stale()
        memo = self._memo(self._memos.setdefault(function, {}), function, argument)
        self._frames[-1].calls[memo] = None
        return memo

    def _queries(
        self, function: Callable[[Ask, Any], Any], arguments: tuple[Hashable, ...]
    ) -> list[_Memo]:
        if self._stale and len(self._frames) == 1:
            self._run_stale()
        by_argument = self._memos.setdefault(function, {})
        memos = [
            memo
            if (memo := by_argument.get(argument)) is not None and not memo.stale
            else self._memo(by_argument, function, argument)
            for argument in arguments
        ]
        self._frames[-1].calls.update(dict.fromkeys(memos))
        return memos

    def _memo(
        self,
        by_argument: dict[Hashable, _Memo],
        function: Callable[[Ask, Any], Any],
        argument: Hashable,
    ) -> _Memo:
        memo = by_argument.get(argument)
        if memo is None:
            memo = by_argument[argument] = _Memo(function, argument)
        if memo.stale:
            self._run(memo)
        return memo

    def _run(self, memo: _Memo) -> None:
        if memo in self._running:
            raise QueryCycleError(f"{memo.function.__name__}({memo.argument!r}) depends on itself")
        self._running.add(memo)
        frame = _Frame(memo.value)
        self._frames.append(frame)
        value, error = None, None
        try:
            value = memo.function(self._ask, memo.argument)
        except QueryCycleError:
            raise
        except Exception as raised:
            error = raised
        finally:
            self._frames.pop()
            self._running.discard(memo)
        self.runs += 1
        memo.stale = False
        self._set_dependencies(memo, frozenset(frame.reads), tuple(frame.calls))
        if memo.has_result and error is None and memo.error is None and value == memo.value:
            return
        memo.has_result, memo.value, memo.error = True, value, error
        memo.traceback = error.__traceback__ if error is not None else None
        self._mark(memo.callers)


class IdentityMemo(Generic[K, V]):
    """Cache of results by the identity of one immutable input, for the back ends.

    A back end gets values, not keys. An unchanged fragment of the IR is the same object as before,
    so its result is found by ``is``. Inputs not used since the last :meth:`sweep` are dropped.
    """

    def __init__(self) -> None:
        self._results: dict[int, tuple[K, V]] = {}
        self._used: set[int] = set()

    def get(self, value: K, make: Callable[[K], V]) -> V:
        """Return ``make(value)``, from the cache if this very object was seen before."""
        identity = id(value)
        self._used.add(identity)
        entry = self._results.get(identity)
        # The entry keeps its input alive, so its identity cannot be reused by another object.
        if entry is not None:
            return entry[1]
        result = make(value)
        self._results[identity] = (value, result)
        return result

    def sweep(self) -> None:
        """Drop every input not used since the last sweep."""
        for identity in self._results.keys() - self._used:
            del self._results[identity]
        self._used.clear()
