"""Users in headers: percent-encoded, with lists and pairs separated by commas. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote_to_bytes

import msgspec

_ENCODED = re.compile(r"(?:[!-$&-+\-.-<>-~]|%[0-9A-Fa-f]{2})*")
"""Visible characters except ``%``, ``,`` and ``=``, and percent-encoded bytes."""

_CLUSTER = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")


class MalformedHeaderError(Exception):
    """An invalid request. The message names the header and the problem."""


class ReviewedUser(msgspec.Struct, frozen=True):
    """A user as in Kubernetes (``authentication.k8s.io`` ``UserInfo``)."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Distinct keys with their values."""


def user(headers: Mapping[str, str], prefix: str) -> ReviewedUser:
    """Parse a user from the headers ``<prefix>user``, ``…uid``, ``…groups``, ``…extra``.

    Raises MalformedHeaderError.
    """
    name = decode_value(headers.get(f"{prefix}user", ""), f"{prefix}user")
    if not name:
        raise MalformedHeaderError(f"{prefix}user is missing")
    return ReviewedUser(
        name,
        decode_value(headers.get(f"{prefix}uid", ""), f"{prefix}uid"),
        _list(headers.get(f"{prefix}groups", ""), f"{prefix}groups"),
        _extra(headers.get(f"{prefix}extra", ""), f"{prefix}extra"),
    )


def to_headers(user: ReviewedUser) -> tuple[tuple[str, str], ...]:
    """Return a user as headers. Empty values are omitted."""
    pairs = (f"{_quote(key)}={_quote(value)}" for key, values in user.extra for value in values)
    headers = (
        ("x-user", _quote(user.name)),
        ("x-uid", _quote(user.uid)),
        ("x-groups", ",".join(map(_quote, user.groups))),
        ("x-extra", ",".join(pairs)),
    )
    return tuple((name, value) for name, value in headers if value)


def requested_cluster(headers: Mapping[str, str]) -> str:
    """Return the cluster that a request is about. Raises MalformedHeaderError."""
    name = headers.get("x-cluster", "")
    if not _CLUSTER.fullmatch(name):
        raise MalformedHeaderError(f"x-cluster: invalid cluster name {name!r}")
    return name


def parse_duration_header(headers: Mapping[str, str], name: str) -> float:
    """Return a duration in seconds. Raises MalformedHeaderError."""
    text = headers.get(name, "")
    if not re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", text, re.ASCII):
        raise MalformedHeaderError(f"{name}: invalid number of seconds {text!r}")
    return float(text)


def decode_value(text: str, where: str) -> str:
    """Decode one value. Raises MalformedHeaderError."""
    if not _ENCODED.fullmatch(text):
        raise MalformedHeaderError(f"{where}: {text!r} is not percent-encoded")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise MalformedHeaderError(f"{where}: {text!r} is not valid UTF-8") from error


def _list(text: str, where: str) -> tuple[str, ...]:
    values = tuple(decode_value(item, where) for item in text.split(",")) if text else ()
    if "" in values:
        raise MalformedHeaderError(f"{where}: one of {len(values)} values is empty")
    return values


def _extra(text: str, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    pairs = []
    for item in text.split(",") if text else ():
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise MalformedHeaderError(f"{where}: {item!r} must be key=value")
        pairs.append((decode_value(key, where), decode_value(value, where)))
    return grouped(pairs)


def grouped(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the distinct keys with all of their values."""
    by_key: dict[str, list[str]] = {}
    for key, value in pairs:
        by_key.setdefault(key, []).append(value)
    return tuple((key, tuple(values)) for key, values in by_key.items())


def _quote(text: str) -> str:
    return quote(text, safe="")
