"""Path rewriting: for backends (rewrite) and in redirects (Location)."""

from __future__ import annotations

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import functions, quoting, regex
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple_directive
from gatehouse.compiler.ir import http as ir

_SLASH = regex.percent_encoded("/")
_SAFE = "[A-Za-z0-9._~!$&'()*+,;=:@/-]"
_NO_DOTS = r"(?![^?]*/(?:\.|%2[Ee]){1,2}(?:[/?]|$))"


_REDIRECTED = "gh_redirected"
"""Variable with the path of a redirect."""

_REDIRECT_PATH = "path of a redirect"


class Location(msgspec.Struct, frozen=True):
    """Path of a redirect as the content of a token, and the directives that set its variable."""

    inner: str
    directives: tuple[Directive, ...] = ()


def rewrites(rewrite: ir.PathRewrite | None, path: ir.PathMatch) -> list[Directive]:
    """Return the directives that change the path sent to a backend; the query stays.

    The decoded path is encoded again, so that ``%2F`` becomes ``/`` (only here: a path that is not
    rewritten is sent byte for byte).
    """
    match rewrite:
        case ir.FullPath(value):
            return [simple_directive("rewrite", quoting.word("^"), _path(value), "break")]
        case ir.PrefixPath(value):
            return _prefix(value.rstrip("/"), _matched(path))
    return []


def _prefix(base: str, prefix: str) -> list[Directive]:
    pattern = regex.escape_regex(prefix)
    # A decoded path may have line ends.
    if base:
        return [_rewrite(rf"(?s)^{pattern}(/.*)?\z", f"{_path(base)[1:-1]}$1")]
    # The rest may be empty, but a path never is.
    return [_rewrite(rf"^{pattern}/*\z", "/"), _rewrite(rf"(?s)^{pattern}(/.*)\z", "$1")]


def _rewrite(pattern: str, replacement: str) -> Directive:
    return simple_directive("rewrite", quoting.quote_literal(pattern), f'"{replacement}"', "break")


def _path(value: str) -> str:
    if "?" in value:
        raise InvalidValueError("path of a rewrite must not contain a question mark")
    return quoting.quote_text_literal(value, "path of a rewrite")


def redirect_location(rewrite: ir.PathRewrite | None, path: ir.PathMatch) -> Location:
    """Return the path and query of a redirect."""
    match rewrite:
        case ir.FullPath(value):
            return Location(
                f"{quoting.quote_text_literal(value, _REDIRECT_PATH)[1:-1]}$is_args$args"
            )
        case ir.PrefixPath(value):
            return _prefix_location(value.rstrip("/"), _matched(path))
    return Location("$request_uri")


def _prefix_location(base: str, prefix: str) -> Location:
    """Keep the rest of the path behind the prefix as the client wrote it.

    Dot segments would be resolved against the new path. In this case the rest is sent as NGINX
    resolved it, unless it has characters that would have to be encoded again.
    """
    inner = quoting.quote_text_literal(base, _REDIRECT_PATH)[1:-1]
    resolved = f"^{regex.escape_regex(prefix)}(?<gh_tail>/{_SAFE}*)$"
    before = regex.percent_encoded(prefix).replace(_SLASH, f"{_SLASH}+")
    written = f"^{_NO_DOTS}{before}(?<gh_tail>/[^?]*)"
    directives = (functions.set_argument(_REDIRECTED, f'"{inner}$gh_tail"'),)
    tests = (("$uri", resolved), ("$request_uri", written))
    return Location(
        f"${{{_REDIRECTED}}}$is_args$args",
        (
            functions.set_argument(_REDIRECTED, f'"{inner or "/"}"'),
            *(
                block("if", (f"({source}", "~", f"{quoting.quote_literal(pattern)})"), directives)
                for source, pattern in tests
            ),
        ),
    )


def _matched(path: ir.PathMatch) -> str:
    if not isinstance(path, ir.PathPrefix):
        raise InvalidValueError("ReplacePrefixMatch requires a PathPrefix match")
    return path.value.rstrip("/")
