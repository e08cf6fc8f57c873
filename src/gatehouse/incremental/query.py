"""Incremental computation by recorded reads: the engine under every compile.

A *query* is a plain top-level function ``f(ask, argument) -> value``. It reads inputs only by
``ask.read(key)`` and other results only by ``ask(function, argument)``; everything it touched is
recorded, so that after a change only what depends on it runs again. A query that runs again and
yields an equal value keeps the old object, so its dependants do not run at all. Arguments are
small hashable values; values are frozen and comparable. A query may also run for an object that is
gone, when who asked for it has not been run yet: it gives whatever stands for nothing.

What there are thousands of is a :class:`gatehouse.table.Table`: :meth:`Ask.map` asks a query for
every value of one, :mod:`gatehouse.grouping` makes others of it; both cost what changed.

The same functions run over an empty :class:`Engine` are the compile from scratch, which is the
oracle of the property tests: incremental and full must agree.
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
    """A query asked, directly or not, for its own result."""


class _Memo:
    """One result, what it was made from, and what was made from it."""

    __slots__ = (
        "argument",
        "callers",
        "calls",
        "error",
        "function",
        "height",
        "made",
        "reads",
        "stale",
        "traceback",
        "value",
    )

    def __init__(self, function: Callable[[Ask, Any], Any], argument: Hashable) -> None:
        self.function = function
        self.argument = argument
        self.made = False
        self.stale = True
        self.height = 0
        """Greater than that of everything it called."""
        self.value: Any = None
        self.error: Exception | None = None
        self.traceback: TracebackType | None = None
        self.reads: frozenset[Key] = frozenset()
        self.calls: tuple[_Memo, ...] = ()
        self.callers: set[_Memo] = set()

    def __lt__(self, other: _Memo) -> bool:
        return self.height < other.height

    def failure(self) -> Exception | None:
        """Give what it raised, with the traceback that it came with: each raise adds to it."""
        return self.error.with_traceback(self.traceback) if self.error is not None else None


class _Frame:
    __slots__ = ("calls", "last", "reads")

    def __init__(self, last: Any = None) -> None:
        self.last = last
        self.reads: set[Key] = set()
        self.calls: dict[_Memo, None] = {}


class Ask:
    """What a query is given to read with; see the module's docstring."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, key: Key) -> Any:
        """Read an input: the object at ``key`` (None if absent), or a table of a bucket's keys."""
        return self._engine._read(key)

    def last(self) -> Any:
        """Give what the running query gave last time, or None.

        Only to find a result sooner that would be the same without: see :mod:`gatehouse.grouping`.
        """
        return self._engine._frames[-1].last

    def __call__(self, function: Callable[[Ask, A], V], argument: A) -> V:
        """Give ``function(ask, argument)``, from memory when nothing it read has changed.

        A query that raised raises the same again, until something it read has changed.
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
        """Ask ``function`` for every argument; thousands of them cost little where none changed.

        ``failed`` gives the value of one that raised; without it the first error is raised.
        """
        arguments = tuple(arguments)
        memos = self._engine._queries(function, arguments)
        found: list[V] = [memo.value for memo in memos]
        for place, memo in enumerate(memos):
            if memo.error is not None:
                error = memo.failure() or memo.error
                if failed is None:
                    raise error
                found[place] = failed(arguments[place], error)
        return found

    def map(
        self,
        function: Callable[[Ask, A], V | None],
        table: Table[K, A],
        failed: Callable[[A, Exception], V | None] | None = None,
    ) -> Table[K, V]:
        """Ask ``function`` for every value; give a table with what is not None of the answers.

        Each chunk of the table is a query of its own, so that only those run again in which
        something changed. ``failed``: as in :meth:`each`.
        """
        chunks = [(function, chunk, failed) for chunk in table.chunks]
        return Table.joined(self.each(_map_chunk, chunks))


def _map_chunk(ask: Ask, which: tuple[Any, Chunk[Any, Any], Any]) -> Chunk[Any, Any]:
    function, chunk, failed = which
    found = ask.each(function, chunk.stored, failed)
    keys = [key for key, value in zip(chunk.ordered, found, strict=True) if value is not None]
    return Chunk(tuple(keys), tuple([value for value in found if value is not None]))


class Engine:
    """A snapshot and the memory of what was computed from it.

    A change marks what read it. Before the next answer that runs again, and then what was made
    from it if it gave something else, from the bottom up; so a pass costs what really changed.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.runs = 0
        """How many query bodies have run so far, for tests and metrics."""
        self._memos: dict[Callable[[Ask, Any], Any], dict[Hashable, _Memo]] = {}
        self._readers: dict[Key, set[_Memo]] = {}
        self._stale: list[tuple[int, _Memo]] = []
        """A heap by height."""
        self._roots: dict[_Memo, None] = {}
        """What the last pass itself asked for."""
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
        """Whether anything that is remembered was made from ``key``."""
        return key in self._readers

    @contextmanager
    def compile(self) -> Iterator[Ask]:
        """Open one pass over the snapshot. What the pass did not ask for is forgotten at its end.

        A pass that raises forgets nothing.
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
        self._forget()

    def _mark(self, memos: Iterable[_Memo]) -> None:
        for memo in memos:
            if not memo.stale:
                memo.stale = True
                heappush(self._stale, (memo.height, memo))

    def _settle(self) -> None:
        """Run what is stale, the lowest first: what it calls is settled then.

        One that comes to call something it did not call before may have to run once more.
        """
        while self._stale:
            _, memo = heappop(self._stale)
            if memo.stale and (memo.callers or memo in self._roots):
                self._run(memo)

    def _forget(self) -> None:
        """Drop what nothing asks for any more, and what only that asked for."""
        while self._orphans:
            memo, _ = self._orphans.popitem()
            if memo.callers or memo in self._roots:
                continue
            if self._memos[memo.function].get(memo.argument) is memo:
                del self._memos[memo.function][memo.argument]
            self._depend(memo, frozenset(), ())

    def _depend(self, memo: _Memo, reads: frozenset[Key], calls: tuple[_Memo, ...]) -> None:
        """Make ``memo`` depend on these, and on nothing else."""
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
            self._settle()
        memo = self._memo(self._memos.setdefault(function, {}), function, argument)
        self._frames[-1].calls[memo] = None
        return memo

    def _queries(
        self, function: Callable[[Ask, Any], Any], arguments: tuple[Hashable, ...]
    ) -> list[_Memo]:
        if self._stale and len(self._frames) == 1:
            self._settle()
        named = self._memos.setdefault(function, {})
        found = [
            known
            if (known := named.get(argument)) is not None and not known.stale
            else self._memo(named, function, argument)
            for argument in arguments
        ]
        self._frames[-1].calls.update(dict.fromkeys(found))
        return found

    def _memo(
        self,
        named: dict[Hashable, _Memo],
        function: Callable[[Ask, Any], Any],
        argument: Hashable,
    ) -> _Memo:
        memo = named.get(argument)
        if memo is None:
            memo = named[argument] = _Memo(function, argument)
        if memo.stale:
            self._run(memo)
        return memo

    def _run(self, memo: _Memo) -> None:
        if memo in self._running:
            raise QueryCycleError(f"{memo.function.__name__}({memo.argument!r}) asks for itself")
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
        self._depend(memo, frozenset(frame.reads), tuple(frame.calls))
        if memo.made and error is None and memo.error is None and value == memo.value:
            return
        memo.made, memo.value, memo.error = True, value, error
        memo.traceback = error.__traceback__ if error is not None else None
        self._mark(memo.callers)


class IdentityMemo(Generic[K, V]):
    """Results by the identity of one immutable input, for the back ends.

    A back end gets values, not keys; an unchanged part of the IR is the same object as before,
    so its rendering is found by ``is``. Inputs not used since the last :meth:`sweep` are dropped.
    """

    def __init__(self) -> None:
        self._results: dict[int, tuple[K, V]] = {}
        self._used: set[int] = set()

    def get(self, value: K, make: Callable[[K], V]) -> V:
        """Give ``make(value)``, from memory if this very object was seen before."""
        identity = id(value)
        self._used.add(identity)
        found = self._results.get(identity)
        # The entry keeps its input alive, so an identity is never that of another object.
        if found is not None:
            return found[1]
        result = make(value)
        self._results[identity] = (value, result)
        return result

    def sweep(self) -> None:
        """Forget every input not asked for since the last sweep."""
        for identity in self._results.keys() - self._used:
            del self._results[identity]
        self._used.clear()
