"""Incremental computation with recorded reads: the engine of every compile pass.

A *query* is a plain top-level function ``f(ask, *arguments) -> value``. It reads inputs only
through ``ask.read(key)`` and results of other queries only through ``ask(function, *arguments)``.
The engine records these dependencies, so that after a change only the dependent queries run again.
If a query runs again and returns an equal value, the old object is kept and its callers do not run
at all. Arguments are small hashable values; values are frozen and comparable. A query may also run
for a deleted object, if its caller has not been run again yet. It must then return an empty result.

Large collections are a :class:`gatehouse.incremental.table.Table`. :meth:`Ask.map` runs a query for
every value of a table, :meth:`Ask.map_keys` for every key, :meth:`Ask.entry` reads one entry, and
the methods of :class:`~gatehouse.incremental.grouping.Derivations` derive tables from tables. Their
cost depends on the size of the change.

The same functions on an empty :class:`Engine` are the full compile. It is the oracle of the
property tests: incremental and full results must be equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from heapq import heappop, heappush
from itertools import compress, count, repeat
from math import inf
from operator import is_not
from typing import Any, TypeVar, TypeVarTuple

from gatehouse.incremental.dependencies import Dependencies
from gatehouse.incremental.grouping import Derivations
from gatehouse.incremental.memo import (
    Frame,
    Memo,
    QueryCycleError,
    TooEarlyError,
    error_of,
    height_of,
    raise_height,
    stale_of,
    value_of,
)
from gatehouse.incremental.snapshot import Index, Key, Snapshot
from gatehouse.incremental.table import Chunk, Table

__all__ = ["Ask", "Engine", "Index", "Key", "QueryCycleError", "Snapshot"]

A = TypeVar("A", bound=Hashable)
Arguments = TypeVarTuple("Arguments")
V = TypeVar("V")
K = TypeVar("K")
S = TypeVar("S")


class Ask(Derivations):
    """Read access for queries; see the module's docstring."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, key: Key) -> Any:
        """Read an input: the object at ``key`` (None if absent) or the keys of an index bucket."""
        engine = self._engine
        engine._frames[-1].reads[key] = None
        return engine.snapshot.get(key)

    def last(self) -> Any:
        """Return the previous value of the running query, or None.

        Use it only to compute the same result faster.
        """
        return self._engine._frames[-1].last

    def _advance(self, step: Callable[..., S], *inputs: Any) -> S:
        frame = self._engine._frames[-1]
        if frame.derived is not None:
            raise RuntimeError("a query derives one table only")
        frame.derived = result = step(frame.state, *inputs)
        return result

    def __call__(self, function: Callable[[Ask, *Arguments], V], *arguments: *Arguments) -> V:
        """Return ``function(ask, *arguments)``, from the cache if no dependency has changed.

        An exception is cached too: it is raised again until a dependency of the query has changed.
        """
        engine = self._engine
        # As Engine._lookup, without the price of another call: this runs most often of all.
        memo = engine._memos[function].get(arguments)
        if memo is None or memo.stale or memo.height > engine._current_height:
            memo = engine._lookup(function, arguments)
        engine._frames[-1].calls[memo] = None
        if memo.error is not None:
            raise memo.failure()
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
        return self.each_call(function, zip(arguments), failed)

    def each_call(
        self,
        function: Callable[[Ask, *Arguments], V],
        calls: Iterable[tuple[*Arguments]],
        failed: Callable[[*Arguments, Exception], V] | None = None,
    ) -> list[V]:
        """Return the result of ``function`` for every tuple of arguments, as :meth:`each`."""
        calls = tuple(calls)
        memos = self._engine._queries(function, calls)
        values: list[V] = [*map(value_of, memos)]
        for index in compress(count(), map(error_of, memos)):
            error = memos[index].failure()
            if failed is None:
                raise error
            values[index] = failed(*calls[index], error)
        return values

    def map(
        self,
        function: Callable[[Ask, A], V | None],
        table: Table[K, A],
        failed: Callable[[A, Exception], V | None] | None = None,
    ) -> Table[K, V]:
        """Return a table of the results for every value, without those that are None.

        Each chunk of the table is a query of its own, so that only chunks with a change run again.
        ``failed``: as in :meth:`each`.
        """
        return self._mapped(Ask.each, function, table, failed)

    def map_keys(
        self,
        function: Callable[[Ask, A, K], V | None],
        table: Callable[[Ask, A], Table[K, Any]],
        argument: A,
        failed: Callable[[A, K, Exception], V | None] | None = None,
    ) -> Table[K, V]:
        """Return a table of the results for every key of a table, without those that are None.

        ``table``: query of the table. ``function`` gets ``argument`` and the key.
        """
        return self._mapped(Ask.each_call, function, self(_calls, table, argument), failed)

    def _mapped(
        self, method: Callable[..., Any], function: Any, table: Table[K, Any], failed: Any
    ) -> Table[K, Any]:
        if not table.chunks:
            return _EMPTY
        calls = zip(repeat(method), repeat(function), table.chunks, repeat(failed))
        return Table.joined(self.each_call(_map_chunk, calls))

    def entry(
        self, table: Callable[[Ask, *Arguments], Table[K, V]], *arguments: *Arguments, key: K
    ) -> V | None:
        """Return one entry of the table that a query returns; None if it is absent.

        The caller depends on this entry only, not on the rest of the table.
        """
        engine = self._engine
        memo = engine._lookup(table, arguments)
        frame = engine._frames[-1]
        frame.tables[memo] = None
        frame.reads[memo, key] = None
        if memo.error is not None:
            raise memo.failure()
        value: V | None = memo.value.get(key)
        return value


_EMPTY: Table[Any, Any] = Table()


def _calls(
    ask: Ask, table: Callable[[Ask, A], Table[Any, Any]], argument: A
) -> Table[Any, tuple[Any, Any]]:
    return ask.derive(ask(table, argument), lambda key, _: (argument, key))


def _map_chunk(
    ask: Ask, method: Callable[..., Any], function: Any, chunk: Chunk[Any, Any], failed: Any
) -> Chunk[Any, Any]:
    values = method(ask, function, chunk.stored, failed)
    present = [*map(is_not, values, repeat(None))]
    if all(present):
        # Tables with the same keys share them.
        return Chunk(chunk.ordered, tuple(values))
    return Chunk(tuple(compress(chunk.ordered, present)), tuple(compress(values, present)))


_MISSING = Memo(_map_chunk, ())
"""Stands for a query that has not run. Always stale."""


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
        self._memos: dict[Callable[..., Any], dict[tuple[Any, ...], Memo]] = defaultdict(dict)
        self._dependencies = Dependencies()
        self._stale: list[tuple[int, Memo]] = []
        """A heap by height."""
        self._current_height: float = inf
        """Memos up to this height are stale or up to date. Others may become stale in this pass."""
        self._roots: dict[Memo, None] = {}
        """Memos that the last pass called directly."""
        self._frames: list[Frame] = []
        self._running: set[Memo] = set()
        self._ask = Ask(self)

    def commit(self, changes: Mapping[Key, Any]) -> frozenset[Key]:
        """Apply changes to the snapshot (see :meth:`Snapshot.apply`)."""
        changed = self.snapshot.apply(changes)
        for key in changed:
            self._mark(self._dependencies.readers.get(key, ()))
        return changed

    def reads(self, key: Key) -> bool:
        """Return whether any cached result depends on ``key``."""
        return key in self._dependencies.readers

    @contextmanager
    def compile(self) -> Iterator[Ask]:
        """Open one pass over the snapshot. At its end, results that it did not use are dropped.

        A pass that raises drops nothing.
        """
        root = Frame()
        self._frames = [root]
        self._running.clear()
        try:
            yield self._ask
        except BaseException:
            self._roots.update(root.calls)
            raise
        for memo in self._roots.keys() - root.calls.keys():
            self._dependencies.orphans[memo] = None
        self._roots = root.calls
        self._drop_orphans()

    def _mark(self, memos: Iterable[Memo]) -> None:
        for memo in memos:
            if not memo.stale:
                memo.stale = True
                heappush(self._stale, (memo.height, memo))
                self._current_height = self._stale[0][0]

    def _run_stale(self) -> None:
        """Run the stale memos, the lowest first, so that their callees are up to date.

        A memo that gains a higher dependency runs after it.
        """
        while self._stale:
            try:
                while self._stale:
                    self._current_height, memo = heappop(self._stale)
                    if memo.stale and (memo.callers or memo.entry_callers or memo in self._roots):
                        self._run(memo)
            except TooEarlyError as early:
                raise_height(memo, max(memo.height, early.height + 1))
                heappush(self._stale, (memo.height, memo))
        self._current_height = inf

    def _check_order(self, height: int) -> None:
        """Raise TooEarlyError if a memo of this height may still become stale in this pass."""
        while self._stale and self._stale[0][0] < height:
            _, memo = self._stale[0]
            if memo.stale and (memo.callers or memo.entry_callers or memo in self._roots):
                raise TooEarlyError(height)
            heappop(self._stale)

    def _drop_orphans(self) -> None:
        """Drop the memos without callers, and those that only they called."""
        while self._dependencies.orphans:
            memo, _ = self._dependencies.orphans.popitem()
            if memo.callers or memo.entry_callers or memo in self._roots:
                continue
            if self._memos[memo.function].get(memo.arguments) is memo:
                del self._memos[memo.function][memo.arguments]
            self._dependencies.replace(memo, (), (), ())
            # A traceback refers to the memo, so that only the garbage collector would free both.
            memo.error = memo.traceback = None

    def _lookup(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Memo:
        """Return the up-to-date memo of a query."""
        if len(self._frames) > 1:
            memo = self._run_memo(function, arguments)
            if memo.height > self._current_height:
                self._check_order(memo.height)
            return memo
        while True:
            self._run_stale()
            with suppress(TooEarlyError):
                return self._run_memo(function, arguments)

    def _queries(
        self, function: Callable[..., Any], calls: tuple[tuple[Any, ...], ...]
    ) -> list[Memo]:
        if self._stale and len(self._frames) == 1:
            self._run_stale()
        memos = [*map(self._memos[function].get, calls, repeat(_MISSING))]
        for index in compress(count(), map(stale_of, memos)):
            memos[index] = self._lookup(function, calls[index])
        if self._stale:
            self._check_order(max(map(height_of, memos), default=0))
        self._frames[-1].calls.update(dict.fromkeys(memos))
        return memos

    def _run_memo(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Memo:
        """Return the memo of a query whose result is missing or stale, after running it."""
        memos = self._memos[function]
        memo = memos.get(arguments)
        if memo is None:
            memo = memos[arguments] = Memo(function, arguments)
        if memo.stale:
            self._run(memo)
        return memo

    def _run(self, memo: Memo) -> None:
        if memo in self._running:
            raise QueryCycleError(f"{memo.function.__name__}{memo.arguments!r} depends on itself")
        self._running.add(memo)
        frame = Frame(memo.value, memo.state)
        self._frames.append(frame)
        value, error = None, None
        try:
            value = memo.function(self._ask, *memo.arguments)
        except QueryCycleError:
            raise
        except Exception as raised:
            error = raised
        finally:
            self._frames.pop()
            self._running.discard(memo)
        self.runs += 1
        memo.stale, memo.state = False, frame.derived
        reads, calls, tables = tuple(frame.reads), tuple(frame.calls), tuple(frame.tables)
        self._dependencies.replace(memo, reads, calls, tables)
        if memo.has_result and error is None and memo.error is None and value == memo.value:
            return
        if memo.entry_callers:
            self._mark_entry_callers(memo, value)
        memo.has_result, memo.value, memo.error = True, value, error
        memo.traceback = error.__traceback__ if error is not None else None
        # The traceback refers to this frame.
        error = None
        self._mark(memo.callers)

    def _mark_entry_callers(self, memo: Memo, value: Any) -> None:
        """Mark the memos that depend on entries which differ in the new value of a table."""
        if isinstance(memo.value, Table) and isinstance(value, Table):
            for key, _, _ in memo.value.diff(value):
                self._mark(self._dependencies.readers.get((memo, key), ()))
        else:
            self._mark(memo.entry_callers)
