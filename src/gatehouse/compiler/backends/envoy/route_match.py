"""Matches: which requests a route is for.

Envoy compares paths as they are on the wire, normalised (dot segments, doubled slashes and encoded
letters are resolved), and query parameters as they are written. A value that can be written in
several ways is a regular expression that knows all of them.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from envoy.config.route.v3 import route_components_pb2 as components
from envoy.type.matcher.v3 import string_pb2

from gatehouse.compiler.backends.envoy import quoting
from gatehouse.compiler.ir import http as ir

_PLAIN = re.compile(r"[A-Za-z0-9._~/-]*")
_NAME = re.compile(r"[A-Za-z0-9._~-]+")


def match(wanted: ir.Match) -> Any:
    """Give what must hold for a route. Raises InvalidValueError."""
    made = components.RouteMatch()
    _path(made, wanted.path)
    if wanted.method:
        made.headers.append(method(wanted.method))
    for item in wanted.headers:
        made.headers.extend(_header(item))
    for item in wanted.query:
        _parameter(made, item)
    return made


def decoded(path: str) -> str:
    """Give a path as it is compared: decoded, with single slashes."""
    return re.sub("/+", "/", unquote(path))


def is_plain(path: str) -> bool:
    """Whether there is but one way to write a path."""
    return _PLAIN.fullmatch(path) is not None


def method(name: str) -> Any:
    """Ask for a method."""
    return components.HeaderMatcher(
        name=":method", string_match=string_pb2.StringMatcher(exact=quoting.text(name))
    )


def present(name: str) -> Any:
    """Ask for a header with a value."""
    return holds(name, "(?s).+")


def holds(name: str, pattern: str) -> Any:
    """Ask for a header whose value matches a pattern of our own."""
    return components.HeaderMatcher(name=name, string_match=_regex(pattern))


def _regex(pattern: str) -> Any:
    return string_pb2.StringMatcher(safe_regex=quoting.regex(pattern))


def _path(made: Any, wanted: ir.PathMatch) -> None:
    match wanted:
        case ir.PathExact(value):
            path = decoded(quoting.text(value))
            if path == "/":
                # Envoy leaves two slashes as they are when there is nothing else.
                made.safe_regex.CopyFrom(quoting.regex("//?"))
            elif is_plain(path):
                made.path = path
            else:
                made.safe_regex.CopyFrom(quoting.regex(quoting.encoded(path)))
        case ir.PathPrefix(value):
            path = decoded(quoting.text(value)).rstrip("/")
            if not path:
                made.prefix = "/"
            elif is_plain(path):
                made.path_separated_prefix = path
            else:
                made.safe_regex.CopyFrom(quoting.regex(f"{quoting.encoded(path)}(?:/.*)?"))
        case ir.PathRegex(value):
            made.safe_regex.CopyFrom(quoting.pattern(value))


def _header(item: ir.ValueMatch) -> list[Any]:
    name = quoting.header_name(item.name)
    if not item.regex:
        exact = string_pb2.StringMatcher(exact=quoting.text(item.value))
        return [components.HeaderMatcher(name=name, string_match=exact)]
    wanted = string_pb2.StringMatcher(safe_regex=quoting.pattern(item.value))
    found = components.HeaderMatcher(name=name, string_match=wanted)
    return [found, present(name)] if quoting.matches_nothing(item.value) else [found]


def _parameter(made: Any, item: ir.ValueMatch) -> None:
    if item.regex:
        # An empty value is as good as none.
        quoting.pattern(item.value)
        wanted = item.value
    else:
        wanted = quoting.encoded(quoting.text(item.value), space="+")
    if _NAME.fullmatch(quoting.parameter_name(item.name)):
        made.query_parameters.add(name=item.name, string_match=_regex(wanted))
        if item.regex and quoting.matches_nothing(item.value):
            made.query_parameters.add(name=item.name, string_match=_regex(".+"))
        return
    # Envoy compares names as they are written, and these can be written in several ways.
    name = quoting.encoded(item.name, space="+")
    if item.regex:
        # An expression would have to be kept from looking beyond the value.
        raise quoting.InvalidValueError(
            "Envoy cannot match a regular expression with a query parameter of such a name"
        )
    made.headers.append(holds(":path", rf"[^?]*\?(?:[^&]*&)*{name}={wanted}(?:&.*)?"))
