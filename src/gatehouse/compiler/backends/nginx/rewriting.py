"""Path rewriting: for backends (rewrite) and in redirects (Location)."""

from __future__ import annotations

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import names, quoting, regex
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple
from gatehouse.compiler.ir import http as ir

_SLASH = regex.encoded("/")
_SAFE = "[A-Za-z0-9._~!$&'()*+,;=:@/-]"
_NO_DOTS = r"(?![^?]*/(?:\.|%2[Ee]){1,2}(?:[/?]|$))"


class Location(msgspec.Struct, frozen=True):
    """Path of a redirect as the content of a token, and the maps that it needs."""

    inner: str
    maps: tuple[Directive, ...] = ()


def rewrites(rewrite: ir.PathRewrite | None, path: ir.PathMatch) -> list[Directive]:
    """Return the directives that change the path sent to a backend; the query stays.

    The decoded path is encoded again, so that ``%2F`` becomes ``/`` (only here: a path that is not
    rewritten is sent byte for byte).
    """
    match rewrite:
        case ir.FullPath(value):
            return [simple("rewrite", quoting.word("^"), _path(value), "break")]
        case ir.PrefixPath(value):
            return _prefix(value.rstrip("/"), _matched(path))
    return []


def _prefix(base: str, prefix: str) -> list[Directive]:
    pattern = regex.escape(prefix)
    if base:
        return [_rewrite(f"^{pattern}(/.*)?$", f"{_path(base)[1:-1]}$1")]
    # The rest may be empty, but a path never is.
    return [_rewrite(f"^{pattern}/*$", "/"), _rewrite(f"^{pattern}(/.*)$", "$1")]


def _rewrite(pattern: str, replacement: str) -> Directive:
    return simple("rewrite", quoting.literal(pattern), f'"{replacement}"', "break")


def _path(value: str) -> str:
    if "?" in value:
        raise InvalidValueError("path of a rewrite must not contain a question mark")
    return quoting.text(value)


def location(rewrite: ir.PathRewrite | None, path: ir.PathMatch, scope: str) -> Location:
    """Return the path and query of a redirect."""
    match rewrite:
        case ir.FullPath(value):
            return Location(f"{quoting.text(value)[1:-1]}$is_args$args")
        case ir.PrefixPath(value):
            return _prefix_location(value.rstrip("/"), _matched(path), scope)
    return Location("$request_uri")


def _prefix_location(base: str, prefix: str, scope: str) -> Location:
    """Keep the rest of the path behind the prefix as the client wrote it.

    Dot segments would be resolved against the new path. In this case the rest is sent as NGINX
    resolved it, unless it has characters that would have to be encoded again.
    """
    written = names.variable(scope, "path", base, prefix)
    resolved = names.variable(scope, "resolved path", base, prefix)
    inner = quoting.text(base)[1:-1]
    replacement = f'"{inner}$gh_tail"'
    plain = f"^{regex.escape(prefix)}(?<gh_tail>/{_SAFE}*)$"
    before = regex.encoded(prefix).replace(_SLASH, f"{_SLASH}+")
    maps = (
        _map("$uri", resolved, plain, replacement, f'"{inner or "/"}"'),
        _map("$request_uri", written, f"^{_NO_DOTS}{before}(?<gh_tail>/[^?]*)", replacement,
             f"${resolved}"),
    )  # fmt: skip
    return Location(f"${{{written}}}$is_args$args", maps)


def _map(source: str, variable: str, pattern: str, replacement: str, otherwise: str) -> Directive:
    rows = (simple(quoting.literal(f"~{pattern}"), replacement), simple("default", otherwise))
    return block("map", (source, f"${variable}"), rows)


def _matched(path: ir.PathMatch) -> str:
    if not isinstance(path, ir.PathPrefix):
        raise InvalidValueError("ReplacePrefixMatch requires a PathPrefix match")
    return path.value.rstrip("/")
