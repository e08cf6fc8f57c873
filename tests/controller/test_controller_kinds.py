"""Tables that follow from the record of a kind: informers, views, buckets, status and RBAC."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gatehouse.apis import meta
from gatehouse.apis.resources import Resource
from gatehouse.compiler.frontends import combined, external_load_balancer
from gatehouse.compiler.frontends.kinds import (
    DEADLINE_SUBJECTS,
    STATUS_SUBJECTS,
    DesiredStatus,
    Kind,
    Kinds,
    OwnedKind,
)
from gatehouse.controller import permissions
from gatehouse.controller.informers import Informers
from gatehouse.controller.permissions import Permission
from gatehouse.incremental.query import Ask, Key, Snapshot
from gatehouse.kube import client as kube

GROUP = "example.org"
WIDGETS = Resource(GROUP, "v1", "widgets", "Widget")
GEARS = Resource(GROUP, "v1", "gears", "Gear")
ALL: Key = ("@widgets",)
KEY: Key = ("Widget", "ns", "w")
RAW = {"metadata": {"name": "w", "namespace": "ns"}, "size": 3}


class Widget(meta.Resource, frozen=True):
    """The view of a kind that only this test has."""

    size: int = 0


class WidgetStatus(DesiredStatus, frozen=True):
    """The status of a Widget."""


def status(_: Ask, __: Key) -> WidgetStatus:
    return WidgetStatus()


def deadlines(_: Ask, __: Key) -> tuple[int, ...]:
    return (1,)


RECORD = Kind(
    WIDGETS,
    Widget,
    indexes=(lambda widget: [(*ALL, str(widget.size))],),
    verbs=("create",),
    status=status,
    deadlines=deadlines,
    owned=(OwnedKind(GEARS, STATUS_SUBJECTS, lambda _, __: None, lambda _, __: {}),),
)


@pytest.fixture
def kinds() -> Kinds:
    return Kinds(*combined.KINDS, RECORD)


def allowed(*kinds: Kind) -> set[tuple[str, str]]:
    return {
        (each.resource, each.verb)
        for each in permissions.all_permissions(kinds)
        if each.group == GROUP
    }


def test_kind_is_decoded_by_its_record(kinds: Kinds) -> None:
    assert kinds.decode("Widget", RAW) == Widget(meta.Meta("w", "ns"), 3)
    assert isinstance(kinds.decode("Widget", {**RAW, "size": "no"}), meta.Malformed)


def test_kind_is_indexed_by_its_record(kinds: Kinds) -> None:
    snapshot = Snapshot(kinds.indexes)
    snapshot.apply({KEY: kinds.decode("Widget", RAW)})
    for bucket in ((*ALL, "3"), STATUS_SUBJECTS, DEADLINE_SUBJECTS):
        assert list(snapshot.get(bucket)) == [KEY]


def test_kind_and_its_owned_kind_are_watched_by_the_record(kinds: Kinds) -> None:
    def ignored(*_: Any) -> None: ...

    informers = Informers(cast(kube.Client, None), ignored, ignored, kinds)
    assert {"Widget", "Gear"} <= informers.by_kind.keys()
    assert (
        not {"Widget", "Gear"} & Informers(cast(kube.Client, None), ignored, ignored).by_kind.keys()
    )


def test_kind_is_a_status_target_by_its_record(kinds: Kinds) -> None:
    assert WIDGETS in kinds.with_status
    assert WIDGETS in kinds.optional


def test_kind_is_permitted_by_its_record() -> None:
    owned = {("gears", verb) for verb in ("get", "list", "watch", "create", "update", "delete")}
    own = {("widgets", verb) for verb in ("get", "list", "watch", "create")}
    assert allowed(RECORD) == own | owned | {("widgets/status", "update")}


def test_kind_without_status_is_only_read() -> None:
    assert allowed(Kind(WIDGETS, Widget)) == {("widgets", "list"), ("widgets", "watch")}


def test_kind_is_in_generated_rules_by_its_record() -> None:
    rules = permissions.rules(permissions.watch_permissions((*permissions.KINDS, RECORD)))
    found = {
        Permission(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert Permission(GROUP, "widgets", "watch") in found
    assert found >= permissions.watch_permissions()


@pytest.mark.parametrize(
    "kind",
    [*combined.KINDS, *external_load_balancer.FRONT_END.kinds],
    ids=lambda each: each.view.__name__,
)
def test_name_of_the_view_is_the_kind(kind: Kind) -> None:
    # Messages about malformed objects, and the buckets of policies, use the view's name.
    assert kind.view.__name__ == kind.resource.kind
