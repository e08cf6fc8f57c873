"""Keys of clients: a map from the key of a request to the name of its client.

The map is in a secret file. Its keys are patterns, because NGINX compares texts without regard to
case. A subrequest checks the name, so that NGINX limits the rate of requests and checks addresses
before. The text that is compared starts with a character for its place: ``=`` or, if it may be
percent-encoded, ``?``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import names, quoting, regex
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    format_directives,
    map_block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.header_variables import request_header
from gatehouse.compiler.backends.nginx.route_context import (
    NginxRouteContext,
    RoutePiece,
    definitions,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import API_KEY_CHALLENGE, ApiKeys, KeySource
from gatehouse.compiler.ir.gateway import ApiKeyFile

_CLIENT = "gh_api_client"
"""Variable of a request with the name of its client; empty: it has no valid key."""

_CHALLENGE = "gh_key_challenge"
"""Variable with the challenge to a request without a valid key. Any other 401 has none."""

_CHALLENGES = map_block(
    f'"$status${_CLIENT}"', f"${_CHALLENGE}", {'"401"': f'"{API_KEY_CHALLENGE}"'}
)


class _Place(msgspec.Struct, frozen=True):
    """Syntax of names and values in a part of a request."""

    source: str
    """Variable of NGINX."""
    separator: str
    value: str
    """Pattern of a value that is a key: the group ``gh_key``."""
    mark: str
    other: str
    """Pattern of a character of a value."""

    encoded: bool
    """True if names and values may be percent-encoded."""

    def named(self, name: str) -> str:
        """Return the pattern that matches a name."""
        return regex.percent_encoded(name) if self.encoded else regex.escape_regex(name)

    def start(self, name: str) -> str:
        """Return the pattern that matches what precedes the value with a name."""
        return f"(?:^|{self.separator}){self.named(name)}="


_PLACES = {
    "query": _Place("args", "&", "(?<gh_key>[^&]+)", "?", "[^&]", encoded=True),
    "cookie": _Place(
        "http_cookie",
        r";[ \t]*",
        r'"?(?<gh_key>[^;" \t]+)"?[ \t]*(?:;|$)',
        "=",
        "[^;]",
        encoded=False,
    ),
}


def client_rows(file: ApiKeyFile) -> str:
    """Return the rows of the map from keys to clients. Raises InvalidValueError."""
    return format_directives(
        simple_directive(
            quoting.quote_literal(_pattern(key), f"key of client {client}"),
            quoting.quote_text_literal(client),
        )
        for client, key in file.clients
    )


def _pattern(key: str) -> str:
    plain = regex.escape_regex(key)
    encoded = "".join(
        regex.percent_encoded(c) if c in "+/=" else regex.escape_regex(c) for c in key
    )
    return rf"~^(?:=(?:Bearer )?{plain}|\?{encoded})\z"


def keys_piece(context: NginxRouteContext, keys: ApiKeys) -> RoutePiece:
    """Return the directives that serve only requests with a key. Raises InvalidValueError."""
    if not context.capabilities.auth_request:
        raise InvalidValueError("apiKeys: requires an NGINX with http_auth_request_module")
    key, maps = _key_of_request(keys.sources)
    client = names.variable("key client", keys.keys, key)
    include = simple_directive("include", names.secret_file(keys.keys))
    maps.append(block("map", (f"${key}", f"${client}"), (include,)))
    path = quoting.quote_literal(names.key_check_path())
    check = (
        simple_directive("internal"),
        block("if", (f"(${_CLIENT}", "=", '"")'), (simple_directive("return", "401"),)),
        simple_directive("return", "204"),
    )
    cookie, cookie_maps = _rest("cookie", keys)
    return RoutePiece(
        # A 401 of an authorization server, which is asked before, gets no challenge.
        named=(simple_directive("set", f"${_CLIENT}", '"-"'),),
        # The map would see no query in the subrequest.
        login=(
            simple_directive("set", f"${_CLIENT}", f"${client}"),
            simple_directive("auth_request", path),
        ),
        claim_headers=((keys.client_header, _CLIENT),) if keys.client_header else (),
        cookie=cookie if cookie_maps else "",
        added=(simple_directive("add_header", "WWW-Authenticate", f"${_CHALLENGE}", "always"),),
        needs=definitions((_CHALLENGES, *maps, *cookie_maps)),
        subrequests=(block("location", ("=", path), check),),
    )


def _key_of_request(sources: Sequence[KeySource]) -> tuple[str, list[Directive]]:
    """Return the variable with the first key that a request has, and the maps that define it."""
    chosen, otherwise, maps = "", '""', list[Directive]()
    for source in reversed(sources):
        chosen = names.variable("key", source.kind, source.name, otherwise)
        place = _PLACES.get(source.kind)
        if place is None:
            variable = request_header(source.name)
            rows, default = {'""': otherwise}, f'"=${{{variable}}}"'
        else:
            variable, default = place.source, otherwise
            pattern = f"~{place.start(source.name)}{place.value}"
            rows = {quoting.quote_literal(pattern): f'"{place.mark}$gh_key"'}
        maps.append(map_block(f"${variable}", f"${chosen}", rows, default))
        otherwise = f"${chosen}"
    return chosen, maps


def without_keys(route: ir.Route) -> ir.HeaderEdit:
    """Return the changes of request headers, which remove those with keys first."""
    edit, keys = route.request_headers, route.authentication
    if not isinstance(keys, ApiKeys) or not keys.removed("header"):
        return edit
    return ir.HeaderEdit(edit.set, edit.add, (*keys.removed("header"), *edit.remove))


def has_key_in_query(route: ir.Route) -> bool:
    """Return whether a key may be in the query, so that the query of the client is not sent."""
    keys = route.authentication
    return isinstance(keys, ApiKeys) and bool(keys.removed("query"))


def without_key_directives(route: ir.Route) -> RoutePiece:
    """Return the directives that remove keys from the query.

    A key that is there twice, in the query or in cookies, would be removed once.
    """
    keys = route.authentication
    if not isinstance(keys, ApiKeys):
        return RoutePiece()
    variables, needs = list[Directive](), list[Directive]()
    for kind, place in _PLACES.items():
        rest, maps = _rest(kind, keys)
        if not maps:
            continue
        needs += maps
        patterns = [quoting.quote_literal(place.start(name)) for name in keys.removed(kind)]
        if kind == "query":
            # A query that is set makes NGINX encode the path again.
            removal = simple_directive("set", f"${place.source}", f"${rest}")
            variables += (_if_matches(place.source, pattern, removal) for pattern in patterns)
        rejection = (
            simple_directive("set", f"${_CLIENT}", '""'),
            simple_directive("return", "401"),
        )
        variables += (_if_matches(rest, pattern, *rejection) for pattern in patterns)
    return RoutePiece(variables=tuple(variables), needs=definitions(needs))


def _if_matches(variable: str, pattern: str, *then: Directive) -> Directive:
    return block("if", (f"(${variable}", "~", f"{pattern})"), then)


def _rest(kind: str, keys: ApiKeys) -> tuple[str, list[Directive]]:
    """Return the variable with a part of a request without the keys that the backend does not get,
    and the maps that define it."""
    place, maps = _PLACES[kind], list[Directive]()
    rest, between, other = place.source, place.separator, place.other
    for name in keys.removed(kind):
        before, rest = rest, names.variable("without key", rest, name)
        key = f"{place.named(name)}={other}*"
        last = f"~^(?:(?<gh_first>.*){between})?{key}$"
        inner = f"~^(?<gh_first>(?:.*{between})?){key}{between}(?<gh_last>.*)$"
        rows = {
            quoting.quote_literal(last): '"$gh_first"',
            quoting.quote_literal(inner): '"$gh_first$gh_last"',
        }
        maps.append(map_block(f"${before}", f"${rest}", rows, f"${before}"))
    return rest, maps
