"""What a request asks of a kube-apiserver, read from method, path and query as one reads it.

The rules are those of ``NewRequestInfo`` in ``k8s.io/apiserver`` 0.36 (``pkg/endpoints/request``),
with the prefixes of kube-apiserver: ``api`` without groups, ``apis``. A table of requests with what
that code said of them holds this to it.
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
    """A request that a kube-apiserver does not understand."""


class RequestInfo(msgspec.Struct, frozen=True):
    """A request, in the terms of authorization."""

    verb: str
    """Lower case; the method's own for a request that is not for a resource."""
    path: str
    """Decoded."""
    is_resource: bool = False
    group: str = ""
    """Empty for the core group."""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    """Of the path; else, for a list or watch, the one that its field selector requires."""
    parts: tuple[str, ...] = ()
    """Parts of the path from the resource on."""
    verb_in_path: bool = False
    """The path names the verb: ``watch`` or ``proxy`` before the resource."""

    @property
    def combined(self) -> str:
        """The resource as rules name it: ``<resource>`` or ``<resource>/<subresource>``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def long_running(self) -> bool:
        """Whether it lasts as long as its client wants."""
        if self.verb in _LONG_VERBS:
            return True
        if self.is_resource:
            return self.subresource in _LONG_SUBRESOURCES
        return self.path.startswith("/debug/pprof/")


def parse(method: str, target: str) -> RequestInfo:
    """Read a request. ``target``: the path with its query, as on the wire.

    Raises :class:`RequestError` for one that is answered with an error whatever it would do.
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
    """Give the namespace, and the parts from the resource on."""
    if parts[0] != "namespaces" or len(parts) < 2:
        return "", parts
    if len(parts) > 2 and parts[2] not in _OF_NAMESPACES:
        return parts[1], parts[2:]
    return parts[1], parts


def _listing(query: str) -> tuple[str, str]:
    """Give the verb of a request for a collection, and the name that its selector asks for.

    A query that cannot be read asks for no name. Label selectors are not read: the server refuses
    a bad one whatever else the query says.
    """
    found = _values(query)
    watch = found.get("watch", "0")
    verb = "list" if watch == "0" or watch.casefold() == "false" else "watch"
    for field in _NUMBERS:
        if field in found and not _is_number(found[field]):
            return verb, ""
    name = _chosen(found.get("fieldSelector", "")) or ""
    bad = name in (".", "..") or "/" in name or "%" in name
    return verb, "" if bad else name


def _chosen(selector: str) -> str | None:
    """Give the name that a field selector asks for; None if none, or if it cannot be read."""
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
    """Give a value without its escapes; None if they are wrong."""
    if value is None or not re.fullmatch(r"(?:\\[\\,=]|[^\\,=])*", value, re.S):
        return None
    return re.sub(r"\\(.)", r"\1", value, flags=re.S)


def _is_number(text: str) -> bool:
    digits = text.lstrip("+-").lstrip("0")
    short = len(digits) < 20 and _NUMBER.fullmatch(text) is not None
    return short and -(2**63) <= int(text) < 2**63


def _values(query: str) -> dict[str, str]:
    """Give the first value of each key; a pair that is badly encoded counts for nothing."""
    found: dict[str, str] = {}
    for pair in query.split("&"):
        if not pair or ";" in pair or re.search("%(?![0-9A-Fa-f]{2})", pair):
            continue
        key, _, value = pair.replace("+", " ").partition("=")
        found.setdefault(_unquoted(key), _unquoted(value))
    return found


def _unquoted(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "surrogateescape")
