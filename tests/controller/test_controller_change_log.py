"""Order of changes, by which a rejection of an earlier version is recognised."""

from __future__ import annotations

import pytest

from gatehouse.controller import change_log
from gatehouse.controller.change_log import ChangeLog

POLICY = ("RateLimitPolicy", "n", "p")


def test_change_after_a_version_is_newer() -> None:
    changes = ChangeLog()
    changes.record(POLICY)
    published = changes.now
    assert not changes.changed_since(POLICY, published)
    changes.record(("Secret", "n", "s"))
    assert not changes.changed_since(POLICY, published)
    changes.record(POLICY)
    assert changes.changed_since(POLICY, published)
    assert not changes.changed_since(POLICY, changes.now)


def test_only_the_newest_changes_of_a_kind_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "MAX_LOGGED_CHANGES", 2)
    changes = ChangeLog()
    for name in ("a", "b", "a", "c"):
        changes.record(("Secret", "n", name))
    remembered = [changes.changed_since(("Secret", "n", name), 0) for name in ("a", "b", "c")]
    assert remembered == [True, False, True]


def test_changes_of_one_kind_are_remembered_beside_many_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_log, "MAX_LOGGED_CHANGES", 2)
    changes = ChangeLog()
    changes.record(POLICY)
    for name in ("a", "b", "c"):
        changes.record(("HTTPRoute", "n", name))
    assert changes.changed_since(POLICY, 0)
    assert changes.last(("HTTPRoute", "n", "c")) > changes.last(POLICY)
