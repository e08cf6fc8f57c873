"""Request attributes of a kube-apiserver, parsed from method, path and query.

The rules are those of ``NewRequestInfo`` in ``k8s.io/apiserver`` 0.36 (``pkg/endpoints/request``)
with kube-apiserver's prefixes: ``api`` without groups, and ``apis``. A test compares it with a
table of requests and the results of that code.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

import msgspec

_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_BY_PATH = ("proxy", "watch")
_OF_NAMESPACES = ("status", "finalize")
_LONG_VERBS = ("watch", "proxy")
_LONG_SUBRESOURCES = ("attach", "exec", "proxy", "log", "portforward")
_NUMBERS = ("timeoutSeconds", "limit")
_NUMBER = re.compile(r"[+-]?[0-9]+")
_OPERATORS = ("!=", "==", "=")


class RequestError(ValueError):
    """A request that a kube-apiserver rejects."""


class RequestInfo(msgspec.Struct, frozen=True):
    """Attributes of a request for authorization."""

    verb: str
    """Lower-case verb. For a request that is not for a resource, the method."""
    path: str
    """Decoded path."""
    is_resource: bool = False
    group: str = ""
    """API group; empty for the core group."""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    """Name in the path. For a list or watch, the name required by its field selector."""
    parts: tuple[str, ...] = ()
    """Segments of the path from the resource on."""
    verb_in_path: bool = False
    """True if the path contains the verb: ``watch`` or ``proxy`` before the resource."""

    @property
    def combined(self) -> str:
        """The resource in RBAC notation: ``<resource>`` or ``<resource>/<subresource>``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def long_running(self) -> bool:
        """True if the client determines the duration of the request."""
        if self.verb in _LONG_VERBS:
            return True
        if self.is_resource:
            return self.subresource in _LONG_SUBRESOURCES
        return self.path.startswith("/debug/pprof/")


def parse_request(method: str, target: str) -> RequestInfo:
    """Parse a request. ``target`` is the path with its query, as on the wire.

    Raises :class:`RequestError` for a request that is rejected in any case.
    """
    raw, _, query = target.partition("?")
    if re.search("%(?![0-9A-Fa-f]{2})", raw):
        raise RequestError(f"{raw!r} is not percent-encoded as it should be")
    path = _unquoted(raw)
    parts = path.strip("/").split("/")
    beside = RequestInfo(method.lower(), path)
    if len(parts) < 3 or parts[0] not in ("api", "apis"):
        return beside
    prefix, parts, group = parts[0], parts[1:], ""
    if prefix == "apis":
        if len(parts) < 3:
            return beside
        group, parts = parts[0], parts[1:]
    version, parts = parts[0], parts[1:]
    verb_in_path = parts[0] in _BY_PATH
    if verb_in_path:
        if len(parts) < 2:
            raise RequestError(f"{path!r} names no resource after {parts[0]}")
        verb, parts = parts[0], parts[1:]
    else:
        verb = _VERBS.get(method, "")
    namespace, parts = _namespace(parts)
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 and verb != "proxy" else ""
    if not name and verb == "get":
        verb, name = _listing(query)
    if not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(
        verb, path, True, group, version, parts[0], subresource, namespace, name, tuple(parts),
        verb_in_path,
    )  # fmt: skip


def _namespace(parts: list[str]) -> tuple[str, list[str]]:
    """Return the namespace and the segments from the resource on."""
    if parts[0] != "namespaces" or len(parts) < 2:
        return "", parts
    if len(parts) > 2 and parts[2] not in _OF_NAMESPACES:
        return parts[1], parts[2:]
    return parts[1], parts


def _listing(query: str) -> tuple[str, str]:
    """Return the verb of a collection request and the name required by its field selector.

    An invalid query requires no name. Label selectors are not parsed: the server rejects an invalid
    one regardless of the rest of the query.
    """
    values = _values(query)
    watch = values.get("watch", "0")
    verb = "list" if watch == "0" or watch.casefold() == "false" else "watch"
    for field in _NUMBERS:
        if field in values and not _is_number(values[field]):
            return verb, ""
    name = _required_name(values.get("fieldSelector", "")) or ""
    bad = name in (".", "..") or "/" in name or "%" in name
    return verb, "" if bad else name


def _required_name(selector: str) -> str | None:
    """Return the name that a field selector requires, or None without a valid requirement."""
    try:
        terms = field_terms(selector)
    except SelectorError:
        return None
    for field, operator, value in terms:
        if field == "metadata.name" and operator != "!=":
            return value
    return None


class SelectorError(ValueError):
    """A field selector that cannot be parsed. Its text is the invalid term."""


def field_terms(selector: str) -> list[tuple[str, str, str]]:
    """Parse a field selector into field, operator and value, sorted. Raises SelectorError."""
    terms = []
    for term in sorted(re.findall(r"(?:\\.|[^,\\]|\\$)+", selector, re.S)):
        field, operator, escaped = _term(term)
        value = _unescaped(escaped)
        if value is None:
            raise SelectorError(term)
        terms.append((field, operator, value))
    return terms


def _term(term: str) -> tuple[str, str, str | None]:
    for at in range(len(term)):
        for operator in _OPERATORS:
            if term.startswith(operator, at):
                return term[:at], operator, term[at + len(operator) :]
    return "", "", None


def _unescaped(value: str | None) -> str | None:
    """Return an unescaped value, or None for invalid escapes."""
    if value is None or not re.fullmatch(r"(?:\\[\\,=]|[^\\,=])*", value, re.S):
        return None
    return re.sub(r"\\(.)", r"\1", value, flags=re.S)


def _is_number(text: str) -> bool:
    digits = text.lstrip("+-").lstrip("0")
    short = len(digits) < 20 and _NUMBER.fullmatch(text) is not None
    return short and -(2**63) <= int(text) < 2**63


def _values(query: str) -> dict[str, str]:
    """Return the first value of each key. Pairs with invalid encoding are ignored."""
    values: dict[str, str] = {}
    for pair in query.split("&"):
        if not pair or ";" in pair or re.search("%(?![0-9A-Fa-f]{2})", pair):
            continue
        key, _, value = pair.replace("+", " ").partition("=")
        values.setdefault(_unquoted(key), _unquoted(value))
    return values


def _unquoted(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "surrogateescape")
