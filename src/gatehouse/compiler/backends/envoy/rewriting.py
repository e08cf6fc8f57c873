"""Rewriting of paths and hosts: for backends, and in redirects."""

from __future__ import annotations

from envoy.type.matcher.v3 import regex_pb2

from gatehouse.compiler.backends.envoy import quoting, route_match
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir import http as ir


def rewrite(
    path_rewrite: ir.PathRewrite | None, path: ir.PathMatch
) -> regex_pb2.RegexMatchAndSubstitute | None:
    """Return the rewrite of the path; None if it does not change. The query stays."""
    match path_rewrite:
        case ir.FullPath(value):
            return _substitution(".*", quoting.path(value))
        case ir.PrefixPath(value):
            return _prefix(matched(path), quoting.path(value).rstrip("/"))
    return None


def matched(path: ir.PathMatch) -> str:
    """Return the prefix that a route matched, without its trailing slash."""
    if not isinstance(path, ir.PathPrefix):
        raise InvalidValueError("ReplacePrefixMatch requires a PathPrefix match")
    return route_match.decode_path(path.value).rstrip("/")


def _prefix(prefix: str, base: str) -> regex_pb2.RegexMatchAndSubstitute | None:
    if not prefix:
        return _substitution("/", f"{base}/") if base else None
    pattern = (
        quoting.escape_pattern(prefix)
        if route_match.is_plain(prefix)
        else quoting.encoded_path(prefix)
    )
    # The rest may be empty, but a path never is.
    return _substitution(pattern, base) if base else _substitution(f"{pattern}/*", "/")


def _substitution(pattern: str, value: str) -> regex_pb2.RegexMatchAndSubstitute:
    return regex_pb2.RegexMatchAndSubstitute(
        pattern=quoting.regex(f"^{pattern}"),
        substitution=quoting.replacement(value),
    )
