"""Decoder of YAML, with limits on everything that a text can inflate.

The decoder reads the parser's events and builds the document without recursion. PyYAML's composer
recurses in C and crashes the process on deep nesting. Its constructors also take constructs with
unlimited cost: merge keys, base-60 numbers and aliases that share one object.

Plain scalars have the types that sigs.k8s.io/yaml gives them: YAML 1.1 booleans, no base-60
numbers, no timestamps. Keys become strings. Merge keys and tags beyond those of JSON are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from kube_base.types.document_limits import MAX_JSON_DEPTH, MAX_NODES
from kube_base.types.objects import copy_value

MAX_ALIASED_BYTES = 3 * 1024 * 1024
"""Text that aliases may stand for, in bytes: as much as a body may have without aliases."""

MAX_DIRECTIVES = 100
"""Lines that begin with ``%``. The parser compares each TAG directive with all others at once."""

MAX_NUMBER_CHARACTERS = 310
"""Characters of a number. Longer ones are beyond the range of a double and stay strings."""

_DIRECTIVE = re.compile("(?:^|[\r\n\x85\u2028\u2029])%")
_TAG = "tag:yaml.org,2002:"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {
    spelling: value
    for value, words in ((True, ("true", "yes", "on")), (False, ("false", "no", "off")))
    for word in words
    for spelling in (word, word.capitalize(), word.upper())
}
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0b(?P<binary>[01_]+)|0x(?P<hex>[0-9a-fA-F_]+)|0o?(?P<octal>[0-7_]+)"
    r"|(?P<decimal>0|[1-9][0-9_]*))"
)
_BASES = {"binary": 2, "octal": 8, "decimal": 10, "hex": 16}
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


class YamlDocumentError(ValueError):
    """A text is no YAML within the limits. The message says why, and where."""


class _Anchored(msgspec.Struct, frozen=True):
    """A complete node that aliases may name."""

    value: Any
    nodes: int
    size: int
    """Bytes of its text."""
    height: int
    """Levels of mappings and lists."""


class _Open:
    """A mapping or list under construction."""

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None, line: int) -> None:
        self.value, self.anchor, self.line = value, anchor, line
        self.key: str | None = None
        """Key of a mapping that waits for its value."""
        self.nodes, self.size, self.height = 1, 2, 1

    def takes_key(self) -> bool:
        """Return whether the next node is a key."""
        return isinstance(self.value, dict) and self.key is None


class YamlDocument(msgspec.Struct, frozen=True):
    """A document of a stream."""

    value: Any
    """None for an empty document."""
    repeated: tuple[tuple[int, str], ...] = ()
    """Lines of keys that their mapping has already, with the key. The last value counts."""


def decode_yaml(data: bytes) -> YamlDocument:
    """Decode a single document. Raises YamlDocumentError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlDocumentError(str(error)) from error
    builder = _Builder()
    for event in _events(text):
        builder.take(event)
    return builder.result()


def decode_yaml_documents(text: str) -> Iterator[YamlDocument]:
    """Yield the documents of a file. Raises YamlDocumentError."""
    builder = _Builder()
    for event in _events(text):
        if isinstance(event, yaml.DocumentStartEvent):
            builder = _Builder()
        builder.take(event)
        if isinstance(event, yaml.DocumentEndEvent):
            yield builder.result()


def _events(text: str) -> Iterator[yaml.Event]:
    """Yield the events of the parser. Raises YamlDocumentError."""
    if sum(1 for _ in _DIRECTIVE.finditer(text)) > MAX_DIRECTIVES:
        raise YamlDocumentError(f"more than {MAX_DIRECTIVES} directives")
    try:
        yield from yaml.parse(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise YamlDocumentError(str(error)) from error


class _Builder:
    """Builds a document from the events of the parser."""

    def __init__(self) -> None:
        self._document: Any = None
        self._repeated: list[tuple[int, str]] = []
        """Keys that a mapping has already, with the line of their value."""
        self._documents = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._nodes = self._aliased = 0

    def result(self) -> YamlDocument:
        """Return the document, when all events have been taken."""
        return YamlDocument(self._document, tuple(self._repeated))

    def take(self, event: yaml.Event) -> None:
        """Process a parser event. Raises YamlDocumentError."""
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            self._start(event, {}, "map")
        elif isinstance(event, yaml.SequenceStartEvent):
            self._start(event, [], "seq")
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _error(event, "expected a single document")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._count(1)
        if self._open and self._open[-1].takes_key():
            key = _key(event)
            self._open[-1].key = key
            self._grow(1, len(key) + 2, 0)
            if event.anchor:
                self._anchors[event.anchor] = _Anchored(key, 1, len(key) + 2, 0)
            return
        scalar = _Anchored(_scalar(event), 1, len(event.value) + 2, 0)
        self._add(scalar, event.anchor, _line(event))

    def _start(self, event: yaml.CollectionStartEvent, value: Any, kind: str) -> None:
        self._count(1)
        if event.tag not in (None, "!", _TAG + kind):
            raise _error(event, f"tag {event.tag} is not supported")
        if self._open and self._open[-1].takes_key():
            raise _error(event, "a mapping or list cannot be a key")
        if len(self._open) >= MAX_JSON_DEPTH:
            raise YamlDocumentError(f"nested more than {MAX_JSON_DEPTH} levels deep")
        if event.anchor:
            # An alias of an incomplete node is one of itself.
            self._anchors.pop(event.anchor, None)
        self._open.append(_Open(value, event.anchor, _line(event)))

    def _end(self) -> None:
        ended = self._open.pop()
        node = _Anchored(ended.value, ended.nodes, ended.size, ended.height)
        self._add(node, ended.anchor, ended.line)

    def _alias(self, event: yaml.AliasEvent) -> None:
        anchored = self._anchors.get(event.anchor or "")
        if anchored is None:
            raise _error(event, f"alias *{event.anchor} names no complete node before it")
        self._count(anchored.nodes)
        self._aliased += anchored.size
        if self._aliased > MAX_ALIASED_BYTES:
            raise _error(event, f"aliases stand for more than {MAX_ALIASED_BYTES} bytes")
        if len(self._open) + anchored.height > MAX_JSON_DEPTH:
            raise YamlDocumentError(f"nested more than {MAX_JSON_DEPTH} levels deep")
        if self._open and self._open[-1].takes_key():
            if not isinstance(anchored.value, str):
                raise _error(event, "a key must be a string")
            self._open[-1].key = anchored.value
            self._grow(1, anchored.size, 0)
            return
        # Nodes have at most `MAX_JSON_DEPTH` levels.
        copied = msgspec.structs.replace(anchored, value=copy_value(anchored.value))
        self._add(copied, None, _line(event))

    def _add(self, node: _Anchored, anchor: str | None, line: int) -> None:
        """Add a complete node, which begins at a line, to its parent."""
        if anchor:
            self._anchors[anchor] = node
        if not self._open:
            self._document = node.value
            return
        outer = self._open[-1]
        if isinstance(outer.value, list):
            outer.value.append(node.value)
        elif outer.key is not None:
            if outer.key in outer.value:
                self._repeated.append((line, outer.key))
            outer.value[outer.key] = node.value
            outer.key = None
        self._grow(node.nodes, node.size, node.height)

    def _grow(self, nodes: int, size: int, height: int) -> None:
        outer = self._open[-1]
        outer.nodes += nodes
        outer.size += size
        outer.height = max(outer.height, height + 1)

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise YamlDocumentError(f"more than {MAX_NODES} keys and values")


def _key(event: yaml.ScalarEvent) -> str:
    """Return a key as a string, as sigs.k8s.io/yaml does. Raises YamlDocumentError."""
    if event.value == "<<" and event.implicit[0] and event.tag is None:
        raise _error(event, "merge keys (<<) are not supported")
    value = _scalar(event)
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return msgspec.json.encode(value).decode()
    raise _error(event, "a key must be a string")


def _scalar(event: yaml.ScalarEvent) -> Any:
    """Return the value of a scalar. Raises YamlDocumentError."""
    text, tag = event.value, event.tag
    if tag in ("!", f"{_TAG}str") or (tag is None and not event.implicit[0]):
        return text
    value = _plain(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise _error(event, f"{text} is not a number of JSON")
    if tag is None:
        return value
    for name, kinds in (("null", ()), ("bool", bool), ("int", int), ("float", (int, float))):
        if tag == _TAG + name:
            # A boolean is an int in Python.
            fits = value is None if not kinds else isinstance(value, kinds)
            if fits and (name == "bool") == isinstance(value, bool):
                return float(value) if name == "float" else value
            raise _error(event, f"{text[:100]!r} is not of type {name}")
    raise _error(event, f"tag {tag} is not supported")


def _plain(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if len(text) > MAX_NUMBER_CHARACTERS or not (text[0].isdigit() or text[0] in "+-."):
        return text
    if _NOT_FINITE.fullmatch(text):
        return math.nan
    integer = _INTEGER.fullmatch(text)
    if integer:
        value = _integer(integer)
        if value is not None:
            return value
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def _integer(match: re.Match[str]) -> int | None:
    """Return a matched integer; None if it needs more than 64 bits or has no digits."""
    base = match.lastgroup or "decimal"
    digits = match[base].replace("_", "")
    if not digits:
        return None
    value = int(digits, _BASES[base])
    if match["sign"] == "-":
        value = -value
    return value if -(2**63) <= value < 2**64 else None


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _error(event: yaml.Event, message: str) -> YamlDocumentError:
    mark = event.start_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "unknown place"
    return YamlDocumentError(f"{place}: {message}")
