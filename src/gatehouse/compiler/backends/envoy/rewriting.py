"""New paths and hosts: for backends, and in redirections."""

from __future__ import annotations

from typing import Any

from envoy.type.matcher.v3 import regex_pb2

from gatehouse.compiler.backends.envoy import quoting, route_match
from gatehouse.compiler.ir import http as ir


def rewrite(wanted: ir.PathRewrite | None, path: ir.PathMatch) -> Any:
    """Give the change of the path that is sent; None for none. Arguments stay as they are."""
    match wanted:
        case ir.FullPath(value):
            return _replaced(".*", quoting.path(value))
        case ir.PrefixPath(value):
            return _prefix(matched(path), quoting.path(value).rstrip("/"))
    return None


def hostname(value: str) -> str:
    """Check a host that is sent instead of the one that was asked for."""
    return quoting.text(value)


def matched(path: ir.PathMatch) -> str:
    """Give the prefix that a route matched, without its last slash."""
    if not isinstance(path, ir.PathPrefix):
        raise quoting.InvalidValueError("a prefix can only be replaced where one was matched")
    return route_match.decoded(path.value).rstrip("/")


def _prefix(prefix: str, base: str) -> Any:
    if not prefix:
        return _replaced("/", f"{base}/") if base else None
    pattern = quoting.escape(prefix) if route_match.is_plain(prefix) else quoting.encoded(prefix)
    # Nothing may be left of the path, and a path is never empty.
    return _replaced(pattern, base) if base else _replaced(f"{pattern}/*", "/")


def _replaced(pattern: str, value: str) -> Any:
    return regex_pb2.RegexMatchAndSubstitute(
        pattern=quoting.regex(f"^{pattern}"),
        substitution=quoting.replacement(value),
    )
