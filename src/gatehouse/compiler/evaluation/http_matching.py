"""Choice of the route that answers a request, decided on the IR. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec
import re2

from gatehouse.compiler.evaluation.http_request import (
    HttpRequest,
    decode_parameter,
    normalize_path,
    pattern_path,
    query_parameters,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import GatewayConfiguration, Listener
from kube_base.runtime.quiet_re2 import quiet_options


class FieldMismatch(msgspec.Struct, frozen=True, rename="camel"):
    """A field of a match that a request does not satisfy."""

    field: str
    """Such as ``path``, ``method``, ``header x-version`` or ``query parameter q``."""
    needs: str
    """Description of the values that match."""
    value: str
    """Value of the request; empty if it has none."""
    invalid: bool = False
    """True: the regular expression of the field is not valid, so that no value matches."""

    @property
    def text(self) -> str:
        """The mismatch as part of a sentence."""
        if self.invalid:
            return f"needs {self.field} {self.needs}, which is no valid regular expression"
        got = f"not {self.value!r}" if self.value else "which the request does not have"
        return f"needs {self.field} {self.needs}, {got}"


class RouteMismatch(msgspec.Struct, frozen=True):
    """A route of the IR that was tried before the one that matches."""

    route: ir.Route
    fields: tuple[FieldMismatch, ...]
    """Not empty; the path comes first."""


Outcome = Literal[
    "no-port", "no-handshake", "bad-request", "misdirected", "no-hostname", "no-match", "matched"
]

STATUSES: dict[Outcome, int] = {
    "bad-request": 400,
    "misdirected": 421,
    "no-hostname": 404,
    "no-match": 404,
}
"""Statuses that proxies answer without a route. Without an entry, there is no answer at all."""


class HttpDecision(msgspec.Struct, frozen=True):
    """Result of the search for a route."""

    outcome: Outcome
    listener: Listener | None = None
    virtual_host: ir.VirtualHost | None = None
    route: ir.Route | None = None
    mismatches: tuple[RouteMismatch, ...] = ()
    """Routes in order of precedence that were tried and do not match."""


def decide_http(
    gateway: GatewayConfiguration,
    request: HttpRequest,
    *,
    encoded_patterns: bool = False,
    is_missing: Callable[[ir.Route], bool] = lambda _: False,
) -> HttpDecision:
    """Return the route that answers a request.

    ``encoded_patterns``: paths are those of Envoy, as ``encoded`` and ``bounded`` of
    :mod:`~gatehouse.compiler.evaluation.http_request`. ``is_missing``: returns whether the proxy
    lacks a route that matches.
    """
    protocol = "HTTPS" if request.tls else "HTTP"
    entries = (candidate for candidate in gateway.listeners if candidate.port == request.port)
    listener = next((candidate for candidate in entries if candidate.protocol == protocol), None)
    if listener is None:
        return HttpDecision("no-port")
    names = {host.listener for host in listener.virtual_hosts}
    selected = most_specific(names, request.sni.lower())
    if request.tls and selected is None:
        return HttpDecision("no-handshake", listener)
    merge = gateway.settings.merge_slashes or not encoded_patterns
    path = normalize_path(request.target, bounded=encoded_patterns, merge=merge)
    if path is None or not request.has_valid_host:
        return HttpDecision("bad-request", listener)
    requested = most_specific(names, request.hostname)
    if request.tls and gateway.settings.sni_host_validation and requested != selected:
        outcome: Outcome = "no-hostname" if requested is None else "misdirected"
        return HttpDecision(outcome, listener)
    hosts = {host.hostname: host for host in listener.virtual_hosts}
    hostname = most_specific(hosts, request.hostname)
    if hostname is None:
        return HttpDecision("no-hostname", listener)
    paths = path, pattern_path(request.target, encoded=encoded_patterns, merge=merge)
    mismatches: list[RouteMismatch] = []
    for route in hosts[hostname].routes:
        fields = tuple(_mismatches(route.match, paths, request))
        if not fields and is_missing(route):
            continue
        if not fields:
            return HttpDecision("matched", listener, hosts[hostname], route, tuple(mismatches))
        mismatches.append(RouteMismatch(route, fields))
    return HttpDecision("no-match", listener, hosts[hostname], mismatches=tuple(mismatches))


def most_specific(patterns: Iterable[str], hostname: str) -> str | None:
    """Return the most specific pattern that matches a hostname: exact names before wildcards."""
    matching = [pattern for pattern in patterns if _matches_hostname(pattern, hostname)]
    return max(matching, key=_specificity, default=None)


def _specificity(pattern: str) -> tuple[bool, int]:
    return bool(pattern) and not pattern.startswith("*"), len(pattern)


def _matches_hostname(pattern: str, hostname: str) -> bool:
    if not pattern or pattern == hostname:
        return True
    return pattern.startswith("*.") and hostname.endswith(pattern[1:]) and hostname != pattern[2:]


def _mismatches(
    match: ir.Match, paths: tuple[bytes, bytes], request: HttpRequest
) -> Iterator[FieldMismatch]:
    if not _matches_path(match.path, paths):
        path = request.target.partition("?")[0]
        invalid = isinstance(match.path, ir.PathRegex) and not _is_valid(match.path.value)
        yield FieldMismatch("path", _path_needs(match.path), path, invalid)
    if match.method not in ("", request.method):
        yield FieldMismatch("method", match.method, request.method)
    for item in match.headers:
        value = request.header(item.name)
        # An empty header equals an absent one.
        if not value or not _matches_value(item, value, value):
            yield _value_mismatch(f"header {item.name}", item, value)
    parameters = query_parameters(request.target) if match.query else {}
    for item in match.query:
        sent = parameters.get(item.name, "")
        if not sent or not _matches_value(item, sent, decode_parameter(sent)):
            yield _value_mismatch(f"query parameter {item.name}", item, sent)


def _value_mismatch(field: str, item: ir.ValueMatch, value: str) -> FieldMismatch:
    needs = f"that matches {item.value!r}" if item.regex else repr(item.value)
    return FieldMismatch(field, needs, value, item.regex and not _is_valid(item.value))


def matches_target(match: ir.PathMatch, target: str) -> bool:
    """Return whether the path of a request target matches; False for an invalid target."""
    path = normalize_path(target)
    return path is not None and _matches_path(match, (path, pattern_path(target, encoded=False)))


def _matches_path(match: ir.PathMatch, paths: tuple[bytes, bytes]) -> bool:
    path, seen_by_patterns = paths
    match match:
        case ir.PathExact(value):
            return path == value.encode()
        case ir.PathPrefix(value):
            prefix = value.rstrip("/").encode()
            return path == prefix or path.startswith(prefix + b"/")
        case ir.PathRegex(value):
            return _matches_whole(value, seen_by_patterns)


def _matches_value(item: ir.ValueMatch, encoded: str, decoded: str) -> bool:
    """Return whether a value matches. Patterns see it as it was sent."""
    if item.regex:
        return _matches_whole(item.value, encoded.encode(errors="surrogateescape"))
    return decoded == item.value


def _matches_whole(pattern: str, value: bytes) -> bool:
    """Return whether a value matches. None matches an invalid expression."""
    try:
        return re2.fullmatch(pattern.encode(), value, _options()) is not None
    except (re2.error, UnicodeError):
        # Proxies reject the expression, and the back end reports it.
        return False


def _is_valid(pattern: str) -> bool:
    """Return whether an expression is valid for RE2."""
    try:
        re2.compile(pattern.encode(), _options())
    except (re2.error, UnicodeError):
        return False
    return True


def _options() -> re2.Options:
    options = quiet_options()
    options.dot_nl = True
    # Proxies match bytes, not characters.
    options.encoding = re2.Options.Encoding.LATIN1
    return options


def _path_needs(match: ir.PathMatch) -> str:
    match match:
        case ir.PathExact(value):
            return repr(value)
        case ir.PathPrefix(value):
            return f"prefix {value!r}"
        case ir.PathRegex(value):
            return f"that matches {value!r}"
