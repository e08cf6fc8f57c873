"""Users as headers hold them: percent-encoded, lists and pairs separated by commas. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote_to_bytes

import msgspec

_ENCODED = re.compile(r"(?:[!-$&-+\-.-<>-~]|%[0-9A-Fa-f]{2})*")
"""What is visible, but ``%``, ``,`` and ``=``; and what is encoded."""

_CLUSTER = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")


class MalformedError(Exception):
    """A question that nobody can answer; the message names the header, and says what is wrong."""


class User(msgspec.Struct, frozen=True):
    """Somebody, as Kubernetes knows people (``authentication.k8s.io`` ``UserInfo``)."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Keys, each once, and their values."""


def user(headers: Mapping[str, str], prefix: str) -> User:
    """Read a user of the headers ``<prefix>user``, ``…uid``, ``…groups``, ``…extra``.

    Raises MalformedError.
    """
    name = decoded(headers.get(f"{prefix}user", ""), f"{prefix}user")
    if not name:
        raise MalformedError(f"{prefix}user is missing")
    return User(
        name,
        decoded(headers.get(f"{prefix}uid", ""), f"{prefix}uid"),
        _list(headers.get(f"{prefix}groups", ""), f"{prefix}groups"),
        _extra(headers.get(f"{prefix}extra", ""), f"{prefix}extra"),
    )


def written(user: User) -> tuple[tuple[str, str], ...]:
    """Write a user as headers; what is empty is left out."""
    pairs = (f"{_quote(key)}={_quote(each)}" for key, values in user.extra for each in values)
    headers = (
        ("x-user", _quote(user.name)),
        ("x-uid", _quote(user.uid)),
        ("x-groups", ",".join(map(_quote, user.groups))),
        ("x-extra", ",".join(pairs)),
    )
    return tuple((name, value) for name, value in headers if value)


def cluster(headers: Mapping[str, str]) -> str:
    """Give the cluster that a question is about. Raises MalformedError."""
    found = headers.get("x-cluster", "")
    if not _CLUSTER.fullmatch(found):
        raise MalformedError(f"x-cluster: {found!r} is no name of a cluster")
    return found


def seconds(headers: Mapping[str, str], name: str) -> float:
    """Give a duration. Raises MalformedError."""
    text = headers.get(name, "")
    if not re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", text, re.ASCII):
        raise MalformedError(f"{name}: {text!r} is no number of seconds")
    return float(text)


def decoded(text: str, where: str) -> str:
    """Decode one value. Raises MalformedError."""
    if not _ENCODED.fullmatch(text):
        raise MalformedError(f"{where}: {text!r} is not percent-encoded")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"{where}: {text!r} is no UTF-8") from error


def _list(text: str, where: str) -> tuple[str, ...]:
    found = tuple(decoded(each, where) for each in text.split(",")) if text else ()
    if "" in found:
        raise MalformedError(f"{where}: one of {len(found)} is empty")
    return found


def _extra(text: str, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    pairs = []
    for each in text.split(",") if text else ():
        key, equals, value = each.partition("=")
        if not key or not equals:
            raise MalformedError(f"{where}: {each!r} is no key=value")
        pairs.append((decoded(key, where), decoded(value, where)))
    return grouped(pairs)


def grouped(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Give each key once, with all of its values."""
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return tuple((key, tuple(values)) for key, values in found.items())


def _quote(text: str) -> str:
    return quote(text, safe="")
