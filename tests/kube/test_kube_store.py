"""A mirror's changes, applied in order, always give the server's objects."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kube.store import Changes, Store
from gatehouse.kube.watch_decoder import EventDecoder, WatchEvent
from kube_base.types.objects import ObjectName


def thing(name: str, version: int, uid: str = "u") -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version), "uid": uid}}


# What happens at the server, and whether the watch delivers it before the connection is lost.
put = st.tuples(st.just("put"), st.sampled_from("abcd"))
delete = st.tuples(st.just("delete"), st.sampled_from("abcd"))
deliver = st.tuples(st.just("deliver"), st.just(""))
relist = st.tuples(st.just("relist"), st.just(""))
bookmark = st.tuples(st.just("bookmark"), st.just(""))


@given(st.lists(st.one_of(put, delete, deliver, relist, bookmark), max_size=40))
def test_store_equals_server_after_any_events_and_relists(
    steps: list[tuple[str, str]],
) -> None:
    server: dict[ObjectName, dict[str, Any]] = {}
    pending: list[WatchEvent] = []
    mirror, followed = Store(), dict[ObjectName, dict[str, Any]]()

    def follow(changes: Changes) -> None:
        for key, change in changes.items():
            known = followed.pop(key, None)
            if known is not None:
                assert change.old == known
            # The change of a deletion contains the deleted object.
            assert change.old is not None or change.new is not None
            if change.new is not None:
                followed[key] = change.new

    for revision, (what, name) in enumerate([*steps, ("deliver", "")], start=1):
        key = ("", name)
        match what:
            case "put":
                kind: Any = "MODIFIED" if key in server else "ADDED"
                server[key] = thing(name, revision)
                pending.append(WatchEvent(kind, server[key]))
            case "delete" if key in server:
                del server[key]
                pending.append(WatchEvent("DELETED", thing(name, revision)))
            case "bookmark":
                pending.append(
                    WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(revision)}})
                )
            case "relist":
                pending.clear()
                follow(mirror.replace(list(server.values()), str(revision)))
            case "deliver":
                follow(mirror.receive(pending))
                pending.clear()
    assert dict(mirror.objects) == server == followed


def test_replace_reports_missing_object_as_deleted_with_last_state() -> None:
    mirror = Store()
    mirror.replace([thing("a", 1), thing("b", 2)], "2")
    assert mirror.replace([thing("b", 2)], "5") == {("", "a"): (thing("a", 1), None)}
    assert mirror.resource_version == "5"


def test_unchanged_object_keeps_identity_and_causes_no_change() -> None:
    mirror = Store()
    first = thing("a", 1)
    mirror.replace([first], "1")
    assert mirror.replace([thing("a", 1)], "9") == {}
    assert mirror.receive([WatchEvent("MODIFIED", thing("a", 1))]) == {}
    assert mirror.objects[("", "a")] is first


def test_replace_reports_recreated_object_even_at_same_version() -> None:
    mirror = Store()
    mirror.replace([thing("a", 1, uid="old")], "1")
    assert mirror.replace([thing("a", 1, uid="new")], "1") == {
        ("", "a"): (thing("a", 1, uid="old"), thing("a", 1, uid="new"))
    }


def test_last_of_several_events_for_one_object_wins() -> None:
    mirror = Store()
    mirror.replace([thing("a", 1)], "1")
    changes = mirror.receive(
        [
            WatchEvent("DELETED", thing("a", 2)),
            WatchEvent("ADDED", thing("a", 3)),
            WatchEvent("MODIFIED", thing("a", 4)),
        ]
    )
    assert changes == {("", "a"): (thing("a", 1), thing("a", 4))}
    assert mirror.resource_version == "4"


def test_deletion_contains_last_known_object() -> None:
    mirror = Store()
    mirror.replace([thing("a", 1)], "1")
    deleted = mirror.receive([WatchEvent("DELETED", thing("a", 2))])
    assert deleted == {("", "a"): (thing("a", 1), None)}
    assert mirror.receive([WatchEvent("DELETED", thing("a", 3))]) == {}
    # Created and deleted within one batch: nothing is known of it but these events.
    fleeting = [WatchEvent("ADDED", thing("b", 4)), WatchEvent("DELETED", thing("b", 5))]
    assert mirror.receive(fleeting) == {("", "b"): (thing("b", 4), None)}
    assert dict(mirror.objects) == {}


def test_bookmark_updates_only_resource_version() -> None:
    mirror = Store()
    mirror.replace([], "1")
    assert mirror.receive([WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "7"}})]) == {}
    assert mirror.resource_version == "7"


@given(st.lists(st.text(max_size=20), max_size=8), st.data())
def test_events_are_decoded_from_any_chunking_of_stream(
    names: list[str], data: st.DataObject
) -> None:
    whole = b"".join(
        json.dumps({"type": "ADDED", "object": {"name": name}}).encode() + b"\n" for name in names
    )
    decoder, names_decoded, rest = EventDecoder(), list[str](), whole
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        names_decoded += [event.object["name"] for event in decoder.feed(rest[:size])]
        rest = rest[size:]
    assert names_decoded == names
