"""Tables that follow from the record of a kind: informers, views, buckets, status and RBAC."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gatehouse.apis import meta
from gatehouse.compiler.frontends import combined, external_load_balancer
from gatehouse.compiler.frontends.certificate_validity import Dated
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
from kube_base.types.resource import Resource

GROUP = "example.org"
WIDGETS = Resource(GROUP, "v1", "widgets", "Widget")
GEARS = Resource(GROUP, "v1", "gears", "Gear")
ALL: Key = ("@widgets",)
KEY: Key = ("Widget", "ns", "w")
RAW = {"metadata": {"name": "w", "namespace": "ns"}, "size": 3}


class Widget(meta.KubernetesObject, frozen=True):
    """The view of a kind that only this test has."""

    size: int = 0


class WidgetStatus(DesiredStatus, frozen=True):
    """The status of a Widget."""


def status(_: Ask, __: Key) -> WidgetStatus:
    return WidgetStatus()


def certificates(_: Ask, __: Key) -> tuple[Dated, ...]:
    return (Dated("", ((1, 1),)),)


RECORD = Kind(
    WIDGETS,
    Widget,
    indexes=(lambda widget: [(*ALL, str(widget.size))],),
    verbs=("create",),
    status=status,
    certificates=certificates,
    owned=(OwnedKind(GEARS, STATUS_SUBJECTS, lambda _, __: None, lambda _, __: {}),),
)


@pytest.fixture
def kinds() -> Kinds:
    return Kinds(*combined.KINDS, RECORD)


def allowed(*kinds: Kind) -> set[tuple[str, str]]:
    return {
        (all_permission.resource, all_permission.verb)
        for all_permission in permissions.all_permissions(kinds)
        if all_permission.group == GROUP
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

    client = cast(kube.Client, None)
    informers = Informers(client, ignored, ignored, ignored, kinds)
    assert {"Widget", "Gear"} <= informers.by_kind.keys()
    others = Informers(client, ignored, ignored, ignored).by_kind
    assert not {"Widget", "Gear"} & others.keys()


def test_kind_is_a_status_target_by_its_record(kinds: Kinds) -> None:
    assert WIDGETS in kinds.with_status
    assert not kinds.by_name["Widget"].required


def test_kind_is_permitted_by_its_record() -> None:
    owned = {("gears", verb) for verb in ("get", "list", "watch", "create", "update", "delete")}
    own = {("widgets", verb) for verb in ("get", "list", "watch", "create")}
    assert allowed(RECORD) == own | owned | {("widgets/status", "update")}


def test_kind_without_status_is_only_read() -> None:
    assert allowed(Kind(WIDGETS, Widget)) == {("widgets", "list"), ("widgets", "watch")}


def test_kind_is_in_generated_rules_by_its_record() -> None:
    rules = permissions.rbac_rules(
        permissions.watch_permissions((*permissions.PERMITTED_KINDS, RECORD))
    )
    generated = {
        Permission(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert Permission(GROUP, "widgets", "watch") in generated
    assert generated >= permissions.watch_permissions()


@pytest.mark.parametrize(
    ("kinds", "kind"),
    [
        (kinds, kind.resource.kind)
        for kinds in (combined.KINDS, external_load_balancer.LOAD_BALANCER_FRONT_END.kinds)
        for kind in kinds
    ],
)
def test_malformed_object_has_its_kind(kinds: Kinds, kind: str) -> None:
    decoded = kinds.decode(kind, {"metadata": {"name": 1}})
    assert isinstance(decoded, meta.Malformed)
    assert decoded.kind == kind


@pytest.mark.parametrize(
    "kind", [kind for kind in combined.KINDS if "nginx" in kind.resource.group]
)
def test_name_of_the_view_of_a_policy_is_its_kind(kind: Kind) -> None:
    # The buckets of policies use it.
    assert kind.view.__name__ == kind.resource.kind
