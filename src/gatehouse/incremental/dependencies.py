"""Dependencies between memos and inputs, in both directions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress, repeat

from gatehouse.incremental.memo import (
    Memo,
    MemoGroup,
    Read,
    callers_of,
    height_of,
    raise_height,
)

_FEW = 8
"""Maximum size of a group that is a tuple."""


class Dependencies:
    """The dependencies of all memos."""

    def __init__(self) -> None:
        self.readers: dict[Read, MemoGroup] = {}
        """Memos that depend on an input, or on an entry of a table."""
        self.orphans: dict[Memo, None] = {}
        """Memos that lost a caller."""

    def replace(
        self,
        memo: Memo,
        reads: tuple[Read, ...],
        calls: tuple[Memo, ...],
        tables: tuple[Memo, ...],
    ) -> None:
        """Replace what ``memo`` depends on."""
        if reads != memo.reads:
            before, after = {*memo.reads}, {*reads}
            if gone := before - after:
                groups = _without_memo(map(self.readers.pop, gone), memo)
                self.readers.update(compress(zip(gone, groups, strict=True), groups))
            if new := after - before:
                groups = _with_memo(map(self.readers.get, new, repeat(())), memo)
                self.readers.update(zip(new, groups, strict=True))
        if calls != memo.calls:
            called, callees = {*memo.calls}, {*calls}
            if left := called - callees:
                groups = _without_memo(map(callers_of, left), memo)
                for callee, group in zip(left, groups, strict=True):
                    callee.callers = group
                self.orphans.update(dict.fromkeys(left))
            if added := callees - called:
                groups = _with_memo(map(callers_of, added), memo)
                for callee, group in zip(added, groups, strict=True):
                    callee.callers = group
        if tables != memo.tables:
            for table in memo.tables:
                (table.entry_callers,) = _without_memo((table.entry_callers,), memo)
                self.orphans[table] = None
            for table in tables:
                (table.entry_callers,) = _with_memo((table.entry_callers,), memo)
        memo.reads, memo.calls, memo.tables = reads, calls, tables
        height = 1 + max(map(height_of, (*calls, *tables)), default=0)
        if height > memo.height and (memo.callers or memo.entry_callers):
            raise_height(memo, height)
        memo.height = height


def _with_memo(groups: Iterable[MemoGroup], memo: Memo) -> list[MemoGroup]:
    """Return each group with one more memo. It may be the same group, changed.

    It takes many groups, because a memo can call hundreds, and a call for each costs more than the
    rest.
    """
    result: list[MemoGroup] = []
    for group in groups:
        if isinstance(group, set):
            group.add(memo)
        elif memo not in group:
            group = (*group, memo) if len(group) < _FEW else {*group, memo}
        result.append(group)
    return result


def _without_memo(groups: Iterable[MemoGroup], memo: Memo) -> list[MemoGroup]:
    """Return each group without a memo. It may be the same group, changed."""
    result: list[MemoGroup] = []
    for group in groups:
        if isinstance(group, set):
            group.discard(memo)
        elif memo in group:
            place = group.index(memo)
            group = group[:place] + group[place + 1 :]
        result.append(group)
    return result
