"""Cookies: a session in as many as it takes, and a request's others. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gatehouse.sidecars.authenticator.config import COOKIES

MAX_COOKIE_BYTES = 3800
"""Bytes of a value; browsers keep 4,096 of name, value and attributes (RFC 6265, section 6.1)."""

LOGIN = "_login_"
"""Stands between the names of the session and of a login that has begun."""


class TooLongError(Exception):
    """A session that cookies cannot hold."""


def parse(header: str) -> dict[str, str]:
    """Give the cookies of a request; of several with one name the first, which is most specific."""
    found: dict[str, str] = {}
    for pair in header.split(";"):
        name, _, value = pair.partition("=")
        found.setdefault(name.strip(), value.strip())
    return found


def others(header: str, name: str) -> str:
    """Give a request's cookies without those of the session ``name``, and without odd bytes."""
    header = header.encode("utf-8", "surrogateescape").decode("utf-8", "ignore")
    own = re.compile(rf"{re.escape(name)}(?:_[1-9]|{LOGIN}[0-9a-f]+)?")
    kept = [
        part.strip()
        for part in header.split(";")
        if part.strip() and not own.fullmatch(part.partition("=")[0].strip())
    ]
    return "; ".join(kept)


def split(name: str, text: str) -> list[tuple[str, str]]:
    """Give the cookies that hold ``text``; the first one says how many there are.

    Raises TooLongError.
    """
    text = f"0{text}"
    parts = [
        text[start : start + MAX_COOKIE_BYTES] for start in range(0, len(text), MAX_COOKIE_BYTES)
    ]
    if len(parts) > COOKIES:
        raise TooLongError(f"{len(text)} bytes; {COOKIES * MAX_COOKIE_BYTES} are kept at most")
    parts[0] = f"{len(parts)}{parts[0][1:]}"
    return list(zip(names(name), parts, strict=False))


def joined(name: str, found: Mapping[str, str]) -> str:
    """Give the text that cookies hold; empty if any is missing."""
    first = found.get(name, "")
    if not first[:1].isdecimal() or not first.isascii():
        return ""
    parts = [found.get(each, "") for each in names(name)[: int(first[0])]]
    return "".join(parts)[1:] if all(parts) else ""


def names(name: str) -> Sequence[str]:
    """Give the names of all cookies that a session may be in."""
    return [name, *(f"{name}_{number}" for number in range(1, COOKIES))]


def written(name: str, value: str, *, secure: bool, path: str = "/", age: int | None = None) -> str:
    """Give the value of Set-Cookie; ``age`` None: for as long as the browser runs."""
    words = [f"{name}={value}", f"Path={path}", "HttpOnly", "SameSite=Lax"]
    words += ["Secure"] if secure else []
    words += [f"Max-Age={age}"] if age is not None else []
    return "; ".join(words)
