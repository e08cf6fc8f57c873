"""Records of front ends: how they join, and what they must not share."""

from __future__ import annotations

import pytest

from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.front_end import FrontEnd
from gatehouse.compiler.frontends.kinds import Kind


def test_each_kind_belongs_to_one_front_end() -> None:
    names = [name for front_end in combined.FRONT_ENDS for name in front_end.kinds.by_name]
    assert sorted(names) == sorted(set(names)) == sorted(combined.KINDS.by_name)


def test_each_plural_belongs_to_one_kind() -> None:
    names = [(resource.group, resource.plural) for resource in combined.KINDS.resources]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", [*combined.KINDS], ids=lambda kind: kind.resource.kind)
def test_deferred_status_is_a_status(kind: Kind) -> None:
    assert kind.gateways_of is None or kind.status is not None


@pytest.mark.parametrize("kind", [*combined.KINDS], ids=lambda kind: kind.resource.kind)
def test_owned_kinds_have_owners_in_a_bucket(kind: Kind) -> None:
    assert all(owned.owners[0].startswith("@") for owned in kind.owned)
    assert not kind.owned or kind.indexes


@pytest.mark.parametrize("front_end", combined.FRONT_ENDS[1:])
def test_front_end_that_attaches_to_listeners_counts_its_objects(front_end: FrontEnd) -> None:
    assert front_end.contribution is not None
    assert front_end.attached is not None
