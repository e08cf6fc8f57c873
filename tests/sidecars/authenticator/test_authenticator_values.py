"""Seals, cookies, URLs and claims: what is hostile, and what is only odd."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.oidc_provider import CLIENT
from gatehouse.sidecars.authenticator import claims, cookies, urls
from gatehouse.sidecars.authenticator.config import (
    COOKIES,
    ClaimConfig,
    Party,
    RuleConfig,
    encode_parties,
)
from gatehouse.sidecars.authenticator.cookie_cipher import CookieCipher
from gatehouse.sidecars.authenticator.sessions import Login, LoginSession, SessionCodec

SECRET = b"of tests"


def party(**fields: Any) -> Party:
    known: dict[str, Any] = {
        "name": "p", "owner": "a/b", "issuer": "https://i.example", "metadata_url": "",
        "client_id": CLIENT, "secret": "", "trust": "", "callback": "/cb", "cookie": "S",
        "timeout": 60.0,
    }  # fmt: skip
    return Party(**known | fields)


SESSION = LoginSession("alice", 1.0, 2.0, 3.0, {"groups": ["a"]}, "sid", "refresh", "token")


def test_session_is_valid_for_its_relying_party_only() -> None:
    text = SessionCodec(party(), SECRET).encode_session(SESSION)
    assert SessionCodec(party(name="q"), SECRET).session(text) == SESSION
    assert SessionCodec(party(), b"another").session(text) is None
    for other in (
        {"owner": "a/c"},
        {"issuer": "https://j.example"},
        {"client_id": "other"},
        {"token_hint": True},
        {"backend_claims": ("email",)},
    ):
        assert SessionCodec(party(**other), SECRET).session(text) is None


def test_fields_have_the_keys_that_earlier_agents_read() -> None:
    (entry,) = json.loads(encode_parties([party(backend_claims=("email",))]))
    assert (entry["filter"], entry["told"]) == ("a/b", ["email"])


def test_login_cookie_is_bound_to_its_state_and_not_a_session() -> None:
    keeper, login = SessionCodec(party(), SECRET), Login("n", "v", "/", 1.0)
    text = keeper.encode_login("state", login)
    assert keeper.login("state", text) == login
    assert keeper.login("other", text) is None
    assert keeper.session(text) is None
    assert keeper.login("state", keeper.encode_session(SESSION)) is None


def test_modified_cookie_is_rejected() -> None:
    seal = CookieCipher(SECRET, "a")
    text = seal.encrypt("x", b"content")
    assert seal.decrypt("x", text) == b"content"
    assert text != seal.encrypt("x", b"content")
    for place in range(len(text)):
        changed = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
        # The last character may have bits that stand for nothing.
        assert seal.decrypt("x", changed) in (None, b"content" if place == len(text) - 1 else None)
    for odd in ("", "A", "é", text[:-4], text + "AAAA", "%", "\0", text * 2):
        assert seal.decrypt("x", odd) is None


@given(st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=20_000))
def test_cookies_round_trip_any_text_or_reject_it_as_too_long(text: str) -> None:
    try:
        parts = cookies.split("S", text)
    except cookies.TooLongError:
        assert len(text) >= COOKIES * cookies.MAX_COOKIE_BYTES
        return
    assert all(len(value) <= cookies.MAX_COOKIE_BYTES for _, value in parts)
    header = "; ".join(["a=b", *(f"{name}={value}" for name, value in parts), "S_9=x"])
    assert cookies.join_cookies("S", cookies.parse_cookies(header)) == text
    assert cookies.without_session(header, "S") == "a=b"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "S=",
        "S=9x",
        "S=0x",
        "S=x",
        "S=\u0662x",
        "S=2x",
        "S=2x; S_2=y",
        "S_1=y",
        "S==",
        "S=2; S_1=",
    ],
)
def test_session_with_missing_cookie_is_invalid(header: str) -> None:
    keeper = SessionCodec(party(), SECRET)
    assert keeper.session(cookies.join_cookies("S", cookies.parse_cookies(header))) is None


def test_shorter_session_replaces_longer_one_completely() -> None:
    result = dict(cookies.split("S", "a" * 5000)) | dict(cookies.split("S", "b"))
    assert cookies.join_cookies("S", result) == "b"


@pytest.mark.parametrize(
    ("header", "left"),
    [
        ("S=1; T=2", "T=2"),
        ("T=2; S=1;", "T=2"),
        ("S=1", ""),
        ("S_1=1; S_login_0af=2; Sx=3; xS=4; S_x=5", "Sx=3; xS=4; S_x=5"),
        ('a=S=1; b="x y"', 'a=S=1; b="x y"'),
        (" S =1;S=2;a=b", "a=b"),
        ("a=caf\udce9; b=é; S=1", "a=caf; b=é"),
    ],
)
def test_backends_receive_other_cookies(header: str, left: str) -> None:
    assert cookies.without_session(header, "S") == left


@pytest.mark.parametrize(
    ("uri", "target"),
    [
        ("/a/b?c=d&e=%2F#f", "/a/b?c=d&e=%2F#f"),
        ("/", "/"),
        ("/a//b", "/a//b"),
        ("/?next=//evil.example", "/?next=//evil.example"),
        ("/\udcc3\udca9", "/%C3%A9"),
        ('/"<x>', "/%22%3Cx%3E"),
        ("", "/"),
        ("//evil.example", "/"),
        ("///evil.example", "/"),
        ("/\\evil.example", "/"),
        ("\\\\evil.example", "/"),
        ("/a\\b", "/"),
        ("https://evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("/\tevil", "/"),
        ("/\t/evil.example", "/"),
        ("/a\r\nSet-Cookie: x=y", "/"),
        ("/ /evil.example", "/"),
        ("/" + "a" * urls.MAX_RETURN_PATH_BYTES, "/"),
        ("*", "/"),
    ],
)
def test_return_path_is_limited_to_the_same_origin(uri: str, target: str) -> None:
    assert urls.safe_return_path(uri) == target


@pytest.mark.parametrize(
    ("claim", "value", "held"),
    [
        (ClaimConfig("c", ("a",)), "a", True),
        (ClaimConfig("c", ("a",)), "ab", False),
        (ClaimConfig("c", ("a", "b")), ["x", "b"], True),
        (ClaimConfig("c", ("a,b",)), "a,b", True),
        (ClaimConfig("c", ("true",)), True, True),
        (ClaimConfig("c", ("7",)), 7, True),
        (ClaimConfig("c", ("a",)), None, False),
        (ClaimConfig("c"), "anything", True),
        (ClaimConfig("c"), "", False),
        (ClaimConfig("c"), [], False),
        (ClaimConfig("c"), None, False),
        (ClaimConfig("c"), False, True),
        (ClaimConfig("c", ("[a-z]+@a\\.example",), regex=True), "x@a.example", True),
        (ClaimConfig("c", ("[a-z]+@a\\.example",), regex=True), "x@a.example.evil", False),
        (ClaimConfig("c", ("a|b",), regex=True), "bx", False),
        (ClaimConfig("c", ("(a+)+$",), regex=True), "a" * 5000 + "b", False),
        (ClaimConfig("other", ("a",)), "a", False),
    ],
)
def test_claim_rule_matches_values(claim: ClaimConfig, value: Any, held: bool) -> None:
    assert claims.authorized(party(rules=(RuleConfig((claim,)),)), {"c": value}) is held


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("first", ["a", "x"])
def test_rules_require_all_or_any_claim(every: bool, within: bool, first: str) -> None:
    good, bad = ClaimConfig("c", (first,)), ClaimConfig("c", ("x",))
    rules = (RuleConfig((good, bad), within), RuleConfig((good,)))
    one = first == "a" and not within
    expected = (one and first == "a") if every else first == "a"
    assert claims.authorized(party(rules=rules, every=every), {"c": "a"}) is expected
    assert claims.authorized(party(), {})


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("a\r\nX-Evil: b", "a X-Evil: b"),
        (["a", "b"], "a,b"),
        (None, ""),
        ({"a": [1]}, '{"a":[1]}'),
        ("é", "é"),
        (True, "true"),
    ],
)
def test_claim_text_formats_header_value(value: Any, header: str) -> None:
    assert claims.claim_text(value) == header
