"""Responses that a client rejects: what is sent again, and what the reasons say."""

from __future__ import annotations

import pytest

from fakes.envoy_model import make_resource
from fakes.xds_client import A2, A, B, Client
from gatehouse.dataplane.agent_limits import MAX_NACK_REASON_CHARACTERS
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.nacks import Nack, reasons_in
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    LISTENER_TYPE_URL,
    SECRET_TYPE_URL,
    ResourceSet,
)


def test_rejected_resource_is_not_sent_again_before_it_changes() -> None:
    client = Client(A, B)
    client.ask(CLUSTER_TYPE_URL)
    client.hears()
    client.refuse("Error adding/updating cluster(s) a: it is bad")
    assert client.reasons() == {"a": "it is bad"}
    assert client.hears() == (["b"], []), "it may not have been applied"
    client.accept()
    client.publish(A, make_resource(CLUSTER_TYPE_URL, "b", "two"))
    assert client.hears() == (["b"], [])
    client.accept()
    assert client.hears() == ([], [])
    client.publish(A2, make_resource(CLUSTER_TYPE_URL, "b", "two"))
    assert client.hears() == (["a"], [])
    client.accept()
    assert client.reasons() == {}


def test_rejection_ends_when_previous_version_is_published_again() -> None:
    client = Client(A)
    client.ask(CLUSTER_TYPE_URL)
    client.hears()
    client.accept()
    client.publish(A2)
    client.hears()
    client.refuse("no")
    assert client.reasons() == {"a": "no"}
    assert client.conversation.next() is None
    assert client.conversation.confirmed == ResourceSet([A2]).version
    client.publish(A)
    assert client.hears() == (["a"], [])
    client.accept()
    assert client.conversation.next() is None
    assert client.reasons() == {}
    assert client.conversation.confirmed == ResourceSet([A]).version


def test_nack_without_names_is_narrowed_down_by_halves() -> None:
    client = Client(*(make_resource(CLUSTER_TYPE_URL, f"c{n}", "one") for n in range(1000)))
    client.ask(CLUSTER_TYPE_URL)
    requests = 0
    while (names := client.hears()[0]) or requests == 0:
        requests += 1
        if {"c123", "c700"} & set(names):
            client.refuse("something is wrong")
        else:
            client.accept()
    assert client.reasons() == {"c123": "something is wrong", "c700": "something is wrong"}
    assert requests < 50
    subscription = client.conversation.subscription(CLUSTER_TYPE_URL)
    assert subscription is not None
    assert len(subscription.client_versions) == 998


def test_resource_of_a_rejected_response_is_sent_again_when_it_reverts() -> None:
    """The client may have applied the rejected version in part."""
    client = Client(A, B)
    client.ask(CLUSTER_TYPE_URL)
    client.hears()
    client.accept()
    client.publish(A2, B)
    assert client.hears() == (["a"], [])
    client.refuse("something")
    client.publish(A, B)
    assert client.hears() == (["a"], [])
    client.accept()
    assert client.hears() == ([], [])


def test_resource_of_a_rejected_response_is_removed_when_it_vanishes() -> None:
    client = Client(A, B)
    client.ask(CLUSTER_TYPE_URL)
    for names in (["a", "b"], ["a"], ["b"]):
        assert client.hears() == (names, [])
        client.refuse("something")
    client.publish()
    assert client.hears() == ([], ["a", "b"])
    client.accept()
    assert client.hears() == ([], [])


def test_nack_with_reasons_acknowledges_other_resources() -> None:
    client = Client(A, B)
    client.ask(CLUSTER_TYPE_URL)
    client.hears()
    client.refuse("a: it is bad", a="it is bad")
    assert client.reasons() == {"a": "it is bad"}
    assert client.conversation.next() is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Error adding/updating cluster(s) a: wrong", {"a": "wrong"}),
        ("Error adding/updating cluster(s) a: no, b: x, y", {"a": "no", "b": "x, y"}),
        ("Error adding/updating listener(s) b: wrong\nmore: of it\n", {"b": "wrong\nmore: of it"}),
        ("Error adding/updating cluster(s) c: mentions a: and b", {}),
        ("Proto constraint validation failed: a: b", {}),
        ("a: wrong", {}),
    ],
)
def test_nack_message_is_parsed_into_reasons_by_name(
    message: str, expected: dict[str, str]
) -> None:
    assert reasons_in(message, ["a", "b"]) == expected


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("\n}\n: invalid status", "invalid status"),
        ("...(truncated)", "the resource is invalid; Envoy's message ends before the reason"),
    ],
)
def test_resource_that_envoy_quotes_is_no_part_of_the_reason(end: str, reason: str) -> None:
    client = Client(A)
    client.ask(CLUSTER_TYPE_URL)
    client.hears()
    quoted = 'goo.gle/debug\nname: "a"\nroutes {\n' + "  match: 1\n" * 1000
    client.refuse(f"{quoted}{end}")
    assert client.reasons() == {"a": reason}


def test_long_reason_is_truncated() -> None:
    (reason,) = reasons_in(f"Error adding/updating cluster(s) a: {'x' * 10_000}", ["a"]).values()
    assert len(reason) == MAX_NACK_REASON_CHARACTERS


def test_reason_never_quotes_secret() -> None:
    client = Client(make_resource(SECRET_TYPE_URL, "s", "one"))
    client.ask(SECRET_TYPE_URL, "s")
    client.hears()
    client.refuse('Proto constraint validation failed: name: "s" tls_certificate { private_key')
    assert client.reasons() == {
        "s": 'Proto constraint validation failed: name: "s" tls_certificate'
    }


def test_nack_survives_round_trip_with_reasons() -> None:
    nack = Nack("a: one\nb: two", {"a": "one", "b": "two"})
    assert delta.nack_of(delta.status_of(nack)) == nack


def test_rejected_secret_that_is_sent_again_is_rejected_although_it_is_accepted() -> None:
    """Envoy does not read it again while a draining listener uses it."""
    bad, good = (make_resource(SECRET_TYPE_URL, "s", version) for version in ("bad", "good"))
    client = Client(bad)
    client.ask(SECRET_TYPE_URL, "s")
    client.hears()
    client.refuse("bad key", s="bad key")
    for removed in (), (good,):
        client.publish(*removed)
        client.hears()
        client.accept()
        assert client.reasons() == {}
        client.publish(bad)
        assert client.hears() == (["s"], [])
        client.accept()
        assert client.reasons() == {"s": "bad key"}


def test_rejected_listener_that_is_sent_again_may_be_accepted() -> None:
    bad = make_resource(LISTENER_TYPE_URL, "l", "bad")
    client = Client(bad)
    client.ask(LISTENER_TYPE_URL)
    client.hears()
    client.refuse("cannot bind", l="cannot bind")
    client.publish(make_resource(LISTENER_TYPE_URL, "l", "other"))
    client.hears()
    client.accept()
    client.publish(bad)
    assert client.hears() == (["l"], [])
    client.accept()
    assert client.reasons() == {}
