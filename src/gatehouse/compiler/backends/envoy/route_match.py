"""Route matches: path, method, headers and query parameters.

Envoy compares normalised paths (dot segments, doubled slashes and encoded letters are resolved),
and query parameters as written. A value with several spellings becomes a regular expression that
matches all of them.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from envoy.config.route.v3 import route_components_pb2 as components
from envoy.type.matcher.v3 import string_pb2

from gatehouse.compiler.backends.envoy import client_headers, quoting
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir import http as ir

_PLAIN = re.compile(r"[A-Za-z0-9._~/-]*")
_NAME = re.compile(r"[A-Za-z0-9._~-]+")


def match(source: ir.Match) -> components.RouteMatch:
    """Return the match of a route. Raises InvalidValueError."""
    proto = components.RouteMatch()
    _path(proto, source.path)
    if source.method:
        proto.headers.append(method(source.method))
    for item in source.headers:
        proto.headers.extend(_header(item))
    for item in source.query:
        _parameter(proto, item)
    return proto


def decode_path(path: str) -> str:
    """Return a path as Envoy compares it: decoded, with single slashes."""
    return re.sub("/+", "/", unquote(path))


def is_plain(path: str) -> bool:
    """Return whether a path has only one spelling."""
    return _PLAIN.fullmatch(path) is not None


def method(name: str) -> components.HeaderMatcher:
    """Match a method."""
    return components.HeaderMatcher(
        name=":method", string_match=string_pb2.StringMatcher(exact=quoting.check_text(name))
    )


def present(name: str) -> components.HeaderMatcher:
    """Match requests with a non-empty value of a header."""
    return header_match(name, "(?s).+")


def header_match(name: str, pattern: str) -> components.HeaderMatcher:
    """Match requests whose header matches a pattern of the generator."""
    return components.HeaderMatcher(name=name, string_match=_regex(pattern))


def _regex(pattern: str) -> string_pb2.StringMatcher:
    return string_pb2.StringMatcher(safe_regex=quoting.regex(pattern))


def _path(proto: components.RouteMatch, path_match: ir.PathMatch) -> None:
    match path_match:
        case ir.PathExact(value):
            path = decode_path(quoting.check_text(value, "path"))
            if path == "/":
                # Envoy keeps two slashes if the path has nothing else.
                proto.safe_regex.CopyFrom(quoting.regex("//?"))
            elif is_plain(path):
                proto.path = path
            else:
                proto.safe_regex.CopyFrom(quoting.regex(quoting.encoded_path(path)))
        case ir.PathPrefix(value):
            path = decode_path(quoting.check_text(value, "path")).rstrip("/")
            if not path:
                proto.prefix = "/"
            elif is_plain(path):
                proto.path_separated_prefix = path
            else:
                proto.safe_regex.CopyFrom(quoting.regex(f"{quoting.encoded_path(path)}(?:/.*)?"))
        case ir.PathRegex(value):
            proto.safe_regex.CopyFrom(quoting.regex_matcher(value, "path"))


def _header(item: ir.ValueMatch) -> list[components.HeaderMatcher]:
    name = client_headers.matched_name(item.name)
    if not item.regex:
        exact = string_pb2.StringMatcher(
            exact=quoting.check_text(item.value, f"header {item.name}")
        )
        return [components.HeaderMatcher(name=name, string_match=exact)]
    matcher = string_pb2.StringMatcher(
        safe_regex=quoting.regex_matcher(item.value, f"header {item.name}")
    )
    header = components.HeaderMatcher(name=name, string_match=matcher)
    return [header, present(name)] if quoting.matches_nothing(item.value) else [header]


def _parameter(proto: components.RouteMatch, item: ir.ValueMatch) -> None:
    if item.regex:
        # An empty value counts as absent.
        quoting.regex_matcher(item.value, f"query parameter {item.name}")
        pattern = item.value
    else:
        pattern = quoting.encoded_pattern(quoting.check_text(item.value), space="+")
    if _NAME.fullmatch(quoting.parameter_name(item.name)):
        proto.query_parameters.add(name=item.name, string_match=_regex(pattern))
        if item.regex and quoting.matches_nothing(item.value):
            proto.query_parameters.add(name=item.name, string_match=_regex(".+"))
        return
    # Envoy compares names as written, and these have several spellings.
    name = quoting.encoded_pattern(item.name, space="+")
    if item.regex:
        # The expression could match beyond the value.
        raise InvalidValueError(
            "a regular expression for a query parameter of this name is not supported by Envoy"
        )
    proto.headers.append(header_match(":path", rf"[^?]*\?(?:[^&]*&)*{name}={pattern}(?:&.*)?"))
