"""Cookies: sessions divided into several cookies, and parsing of requests. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gatehouse.sidecars.authenticator.config import COOKIES

MAX_COOKIE_BYTES = 3800
"""Maximum size of a value in bytes. Browsers store 4,096 bytes of name, value and attributes (RFC
6265, section 6.1)."""

LOGIN = "_login_"
"""Separator between the session's cookie name and the ID of a started login."""


class TooLongError(Exception):
    """A session is too large for cookies."""


def parse_cookies(header: str) -> dict[str, str]:
    """Return the cookies of a request. Of equal names the first, most specific one is used."""
    cookies: dict[str, str] = {}
    for pair in header.split(";"):
        name, _, value = pair.partition("=")
        cookies.setdefault(name.strip(), value.strip())
    return cookies


def without_session(header: str, name: str) -> str:
    """Return a request's cookies without those of the session ``name`` and without invalid
    bytes."""
    header = header.encode("utf-8", "surrogateescape").decode("utf-8", "ignore")
    own = re.compile(rf"{re.escape(name)}(?:_[1-9]|{LOGIN}[0-9a-f]+)?")
    remaining = [
        part.strip()
        for part in header.split(";")
        if part.strip() and not own.fullmatch(part.partition("=")[0].strip())
    ]
    return "; ".join(remaining)


def split(name: str, text: str) -> list[tuple[str, str]]:
    """Return the cookies that contain ``text``. The first one stores their number.

    Raises TooLongError.
    """
    text = f"0{text}"
    parts = [
        text[start : start + MAX_COOKIE_BYTES] for start in range(0, len(text), MAX_COOKIE_BYTES)
    ]
    if len(parts) > COOKIES:
        raise TooLongError(f"{len(text)} bytes, the maximum is {COOKIES * MAX_COOKIE_BYTES}")
    parts[0] = f"{len(parts)}{parts[0][1:]}"
    return list(zip(names(name), parts, strict=False))


def join_cookies(name: str, cookies: Mapping[str, str]) -> str:
    """Return the text stored in cookies, or "" if any is missing."""
    first = cookies.get(name, "")
    if not first[:1].isdecimal() or not first.isascii():
        return ""
    parts = [cookies.get(cookie, "") for cookie in names(name)[: int(first[0])]]
    return "".join(parts)[1:] if all(parts) else ""


def names(name: str) -> Sequence[str]:
    """Return the names of all possible cookies of a session."""
    return [name, *(f"{name}_{number}" for number in range(1, COOKIES))]


def set_cookie(
    name: str, value: str, *, secure: bool, path: str = "/", age: int | None = None
) -> str:
    """Return a Set-Cookie value. ``age`` None: until the browser exits."""
    attributes = [f"{name}={value}", f"Path={path}", "HttpOnly", "SameSite=Lax"]
    attributes += ["Secure"] if secure else []
    attributes += [f"Max-Age={age}"] if age is not None else []
    return "; ".join(attributes)
