"""Parsing, serialisation and state of the reviewer, without a process."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.patience import until
from gatehouse.sidecars.reviewer import impersonation, reviews, tokens, user_headers
from gatehouse.sidecars.reviewer.cache import CacheTTLs, TTLCache
from gatehouse.sidecars.reviewer.caching_reviewer import CachingReviewer
from gatehouse.sidecars.reviewer.concurrency import BusyError, ClusterLimiter
from gatehouse.sidecars.reviewer.impersonation import ImpersonationPermission
from gatehouse.sidecars.reviewer.review_client import ReviewClient
from gatehouse.sidecars.reviewer.reviews import InvalidReviewError, Verdict
from gatehouse.sidecars.reviewer.user_headers import MalformedHeaderError, ReviewedUser

_TEXT = st.text(st.characters(codec="utf-8"), min_size=1)

USERS = st.builds(
    ReviewedUser,
    name=_TEXT,
    uid=st.one_of(st.just(""), _TEXT),
    groups=st.lists(_TEXT).map(tuple),
    extra=st.lists(st.tuples(_TEXT, st.one_of(st.just(""), _TEXT))).map(user_headers.grouped),
)


@given(USERS)
def test_user_headers_survive_round_trip(user: ReviewedUser) -> None:
    headers = dict(user_headers.to_headers(user))
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert user_headers.user(headers, "x-") == user


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "x-user is missing"),
        ({"x-user": "%"}, "x-user: '%' is not percent-encoded"),
        ({"x-user": "%zz"}, "x-user: '%zz' is not percent-encoded"),
        ({"x-user": "a b"}, "x-user: 'a b' is not percent-encoded"),
        ({"x-user": "a,b"}, "x-user: 'a,b' is not percent-encoded"),
        ({"x-user": "é"}, "x-user: 'é' is not percent-encoded"),
        ({"x-user": "%C3"}, "x-user: '%C3' is not valid UTF-8"),
        ({"x-user": "a", "x-uid": "1,2"}, "x-uid: '1,2' is not percent-encoded"),
        ({"x-user": "a", "x-groups": "a,,b"}, "x-groups: one of 3 values is empty"),
        ({"x-user": "a", "x-groups": ","}, "x-groups: one of 2 values is empty"),
        ({"x-user": "a", "x-groups": "a=b"}, "x-groups: 'a=b' is not percent-encoded"),
        ({"x-user": "a", "x-extra": "scopes"}, "x-extra: 'scopes' must be key=value"),
        ({"x-user": "a", "x-extra": "=v"}, "x-extra: '=v' must be key=value"),
        ({"x-user": "a", "x-extra": "k=v=w"}, "x-extra: 'v=w' is not percent-encoded"),
        ({"x-user": "a", "x-extra": "k=v,"}, "x-extra: '' must be key=value"),
    ],
)
def test_malformed_user_headers_are_rejected(headers: dict[str, str], message: str) -> None:
    with pytest.raises(MalformedHeaderError) as result:
        user_headers.user(headers, "x-")
    assert str(result.value) == message


def test_extra_header_can_repeat_key() -> None:
    user = user_headers.user({"x-user": "a", "x-extra": "k=1,l=,k=2"}, "x-")
    assert user.extra == (("k", ("1", "2")), ("l", ("",)))


@pytest.mark.parametrize("text", ["", "-1", "nan", "inf", "1e9", "1_0", "1s", "٣", "1" * 10])
def test_malformed_durations_are_rejected(text: str) -> None:
    with pytest.raises(MalformedHeaderError, match="x-good-for"):
        user_headers.parse_duration_header({"x-good-for": text}, "x-good-for")


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a b", "a\n", "a/b", "a" * 254])
def test_invalid_cluster_names_are_rejected(name: str) -> None:
    with pytest.raises(MalformedHeaderError, match="x-cluster"):
        user_headers.requested_cluster({"x-cluster": name})


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("BEARER a.b.c==", "a.b.c=="),
        ("Bearer", ""),
        ("Bearer ", ""),
        ("Bearer a b", ""),
        ("Bearer é", ""),
        ("Bearerabc", ""),
        ("Basic abc", ""),
        ("", ""),
    ],
)
def test_bearer_token_is_read_from_header(header: str, token: str) -> None:
    assert tokens.bearer_token(header) == token


def _jwt(payload: bytes) -> str:
    part = base64.urlsafe_b64encode(payload).decode().rstrip("=")
    return f"e30.{part}.c2ln"


@pytest.mark.parametrize(
    ("token", "ends"),
    [
        (_jwt(b'{"exp": 1700000000}'), 1700000000),
        (_jwt(b'{"exp": 1700000000.5, "sub": "a"}'), 1700000000.5),
        (_jwt(b'{"sub": "a"}'), math.inf),
        (_jwt(b'{"exp": "soon"}'), math.inf),
        (_jwt(b'{"exp": null}'), math.inf),
        (_jwt(b"[" * 100_000), math.inf),
        (_jwt(b"\xff"), math.inf),
        ("a.é.b", math.inf),
        ("a.b", math.inf),
        ("secret", math.inf),
    ],
)
def test_token_expiry_is_read_from_claims(token: str, ends: float) -> None:
    assert tokens.expiry(token) == ends


@given(st.text())
def test_malformed_token_has_no_expiry(text: str) -> None:
    assert tokens.expiry(f"a.{text}.b") == math.inf


@pytest.mark.parametrize(
    ("name", "permission"),
    [
        ("alice", ImpersonationPermission("users", "alice")),
        ("system:node:a", ImpersonationPermission("users", "system:node:a")),
        (
            "system:serviceaccount:ns:web",
            ImpersonationPermission("serviceaccounts", "web", namespace="ns"),
        ),
        (
            "system:serviceaccount:ns:a.b",
            ImpersonationPermission("serviceaccounts", "a.b", namespace="ns"),
        ),
        ("system:serviceaccount:ns", ImpersonationPermission("users", "system:serviceaccount:ns")),
        ("system:serviceaccount::a", ImpersonationPermission("users", "system:serviceaccount::a")),
        (
            "system:serviceaccount:ns:",
            ImpersonationPermission("users", "system:serviceaccount:ns:"),
        ),
        (
            "system:serviceaccount:a:b:c",
            ImpersonationPermission("users", "system:serviceaccount:a:b:c"),
        ),
        (
            "system:serviceaccount:a.b:c",
            ImpersonationPermission("users", "system:serviceaccount:a.b:c"),
        ),
        (
            "system:serviceaccount:NS:c",
            ImpersonationPermission("users", "system:serviceaccount:NS:c"),
        ),
        (
            f"system:serviceaccount:{'a' * 64}:c",
            ImpersonationPermission("users", f"system:serviceaccount:{'a' * 64}:c"),
        ),
    ],
)
def test_impersonated_name_requires_permission(
    name: str, permission: ImpersonationPermission
) -> None:
    assert impersonation.permissions(ReviewedUser(name)) == [permission]


def test_impersonation_requires_each_permission_once() -> None:
    user = ReviewedUser("bob", "7", ("a", "b", "a"), (("Scopes", ("x", "y")), ("scopes", ("x",))))
    beyond = "authentication.k8s.io"
    assert impersonation.permissions(user) == [
        ImpersonationPermission("users", "bob"),
        ImpersonationPermission("groups", "a"),
        ImpersonationPermission("groups", "b"),
        ImpersonationPermission("uids", "7", beyond),
        ImpersonationPermission("userextras", "x", beyond, subresource="scopes"),
        ImpersonationPermission("userextras", "y", beyond, subresource="scopes"),
    ]


def test_impersonation_permissions_are_limited() -> None:
    groups = tuple(map(str, range(impersonation.MAX_PERMISSIONS)))
    with pytest.raises(MalformedHeaderError, match="1001 permissions needed"):
        impersonation.permissions(ReviewedUser("bob", groups=groups))


def test_access_review_is_about_client_and_not_impersonated() -> None:
    client = ReviewedUser("al", "1", ("dev",), (("scopes", ("x", "y")),))
    needed = ImpersonationPermission("userextras", "v", "authentication.k8s.io", subresource="k")
    assert msgspec.json.decode(reviews.of_permission(client, needed)) == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "al",
            "uid": "1",
            "groups": ["dev"],
            "extra": {"scopes": ["x", "y"]},
            "resourceAttributes": {
                "verb": "impersonate",
                "group": "authentication.k8s.io",
                "version": "v1",
                "resource": "userextras",
                "subresource": "k",
                "name": "v",
            },
        },
    }


def _token_review(status: Any) -> bytes:
    return msgspec.json.encode({"kind": "TokenReview", "status": status})


def test_token_review_returns_user_or_denial() -> None:
    user = {"username": "a", "groups": ["g", ""], "extra": {"k": ["v"]}}
    result = reviews.token_verdict(_token_review({"authenticated": True, "user": user}), 5.0)
    headers = (("x-user", "a"), ("x-groups", "g"), ("x-extra", "k=v"))
    assert result == Verdict(True, headers, ends=5.0)
    nothing = {"authenticated": True, "user": {"username": "a", "groups": None, "extra": None}}
    assert reviews.token_verdict(_token_review(nothing), 5.0).headers == (("x-user", "a"),)
    assert reviews.token_verdict(_token_review({"error": "no"}), 5.0) == Verdict(False)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"kind": "Status", "status": {"authenticated": true}}',
        b'{"kind": "TokenReview"}',
        b'{"kind": "TokenReview", "status": "Failure"}',
        b'{"kind": "TokenReview", "status": {"authenticated": "yes"}}',
        _token_review({"authenticated": True}),
        _token_review({"authenticated": True, "user": {"username": ""}}),
        _token_review({"authenticated": True, "user": {"username": "a", "groups": "g"}}),
    ],
)
def test_malformed_review_is_rejected(body: bytes) -> None:
    with pytest.raises(InvalidReviewError):
        reviews.token_verdict(body, math.inf)


@pytest.mark.parametrize(
    ("status", "granted"),
    [
        ({"allowed": True}, True),
        ({"allowed": False}, False),
        ({"allowed": False, "denied": True, "reason": "no"}, False),
        ({"allowed": True, "denied": True}, False),
    ],
)
def test_access_is_granted_when_allowed_and_not_denied(
    status: dict[str, Any], granted: bool
) -> None:
    body = msgspec.json.encode({"kind": "SubjectAccessReview", "status": status})
    assert reviews.access_verdict(body).granted is granted


def test_access_review_without_result_is_invalid() -> None:
    for status in ({}, {"allowed": None}, {"evaluationError": "x"}):
        body = msgspec.json.encode({"kind": "SubjectAccessReview", "status": status})
        with pytest.raises(InvalidReviewError):
            reviews.access_verdict(body)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


KEEP = CacheTTLs(10.0, 1.0)
YES, NO = Verdict(True), Verdict(False)


def test_cached_answer_is_valid_for_ttl_of_request() -> None:
    clock = Clock()
    memory = TTLCache(clock=clock, wall=clock)
    memory.put(b"yes", YES, clock.now, KEEP)
    memory.put(b"no", NO, clock.now, KEEP)
    clock.now += 0.75
    assert memory.get(b"yes", KEEP) == (YES, 9.25)
    assert memory.get(b"no", KEEP) == (NO, 0.25)
    assert memory.get(b"yes", CacheTTLs(0.5, 0.5)) is None
    assert memory.get(b"yes", CacheTTLs(100.0, 1.0)) == (YES, 99.25)
    clock.now += 0.25
    assert memory.get(b"no", KEEP) is None


def test_cached_answer_is_invalid_after_token_expiry() -> None:
    clock = Clock()
    memory = TTLCache(clock=clock, wall=clock)
    memory.put(b"k", Verdict(True, ends=1004.0), clock.now, KEEP)
    assert memory.get(b"k", KEEP) == (Verdict(True, ends=1004.0), 4.0)
    clock.now += 4
    assert memory.get(b"k", KEEP) is None
    memory.put(b"late", Verdict(True, ends=1004.0), clock.now, KEEP)
    assert len(memory) == 1
    memory.sweep()
    assert (len(memory), memory.characters) == (0, 0)


def test_cache_ignores_entry_with_zero_ttl() -> None:
    memory = TTLCache()
    memory.put(b"k", YES, 0.0, CacheTTLs(0.0, 0.0))
    assert len(memory) == 0


def test_cache_evicts_least_recently_used_entry() -> None:
    clock = Clock()
    memory = TTLCache(entries=3, clock=clock, wall=clock)
    for key in (b"a", b"b", b"c"):
        memory.put(key, YES, clock.now, KEEP)
    assert memory.get(b"a", KEEP)
    memory.put(b"d", YES, clock.now, KEEP)
    assert [bool(memory.get(entry_key, KEEP)) for entry_key in (b"a", b"b", b"c", b"d")] == [
        True, False, True, True,
    ]  # fmt: skip


def test_cache_limits_total_size_of_entries() -> None:
    clock = Clock()
    memory = TTLCache(characters=10_000, clock=clock, wall=clock)
    for number in range(50):
        large = Verdict(True, (("x-groups", "g" * 3000),))
        memory.put(str(number).encode(), large, clock.now, KEEP)
        assert memory.characters <= 10_000
    assert len(memory) == 3
    memory.put(b"huge", Verdict(True, (("x-groups", "g" * 20_000),)), clock.now, KEEP)
    assert len(memory) == 3


async def test_limiter_queues_and_rejects_reviews_per_cluster() -> None:
    turns = ClusterLimiter(concurrent=2, waiting=1, seconds=0.1)
    release = asyncio.Event()

    async def ask(cluster: str) -> None:
        async with turns.acquire(cluster):
            await release.wait()

    held = [asyncio.create_task(ask("a")) for _ in range(2)]
    late = asyncio.create_task(ask("a"))
    await asyncio.sleep(0)
    assert turns.active == {"a": 3}
    with pytest.raises(BusyError, match="a: too many waiting reviews"):
        await ask("a")
    other = asyncio.create_task(ask("b"))
    await asyncio.sleep(0)
    assert turns.active == {"a": 3, "b": 1}
    with pytest.raises(BusyError, match=r"a: no free slot for a review within 0\.1 s"):
        await late
    release.set()
    await asyncio.gather(*held, other)
    assert turns.active == {}


Answer = TypeVar("Answer")


class Changing(ReviewClient):
    """A cluster that says one thing after the other."""

    def __init__(self, *answers: bytes) -> None:
        self.retries = 0
        self._said = iter(answers)

    async def review(
        self, cluster: str, path: str, body: bytes, read: Callable[[bytes], Answer]
    ) -> Answer:
        return read(next(self._said))


async def test_expired_grant_is_not_reused_by_request_with_longer_ttl() -> None:
    yes = _token_review({"authenticated": True, "user": {"username": "a"}})
    asking = CachingReviewer(Changing(yes, _token_review({}), yes), ClusterLimiter())
    assert (await asking.token("c", "t", CacheTTLs(0.01, 60.0)))[0].granted

    async def is_expired() -> bool:
        return not (await asking.token("c", "t", CacheTTLs(0.01, 60.0)))[0].granted

    await until(is_expired)
    assert not (await asking.token("c", "t", CacheTTLs(600.0, 60.0)))[0].granted
    assert (await asking.token("c", "t", CacheTTLs(600.0, 0.0)))[0].granted
    assert (await asking.token("c", "t", CacheTTLs(600.0, 60.0)))[0].granted
