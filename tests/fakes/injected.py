"""Search for the injected word of `hostile_objects` in the structure of both proxies' outputs.

Values of objects may have the word. In NGINX's files, a value is a quoted token. In Envoy's
resources, a value is one of the fields that Envoy takes as a value. Names, keys, formats and code
are structure.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crossplane
from google.protobuf import any_pb2, symbol_database
from google.protobuf.descriptor import FieldDescriptor
from validate import validate_pb2
from validate.validate_pb2 import KnownRegex

from fakes.hostile_objects import INJECTED
from gatehouse.dataplane.file_set import FileSet
from gatehouse.dataplane.xds.resources import ResourceSet

_MATCHERS = "envoy.type.matcher.v3."
"""Package of messages that Envoy compares with values of requests, and never expands."""
_VALUES = {
    "envoy.config.route.v3.RedirectAction.path_redirect",
    "envoy.config.route.v3.RouteMatch.path",
    "envoy.config.route.v3.RouteMatch.path_separated_prefix",
    "envoy.config.route.v3.RouteMatch.prefix",
    "envoy.extensions.filters.http.ext_authz.v3.HttpService.path_prefix",
    "envoy.type.tracing.v3.CustomTag.Literal.value",
    "envoy.type.tracing.v3.CustomTag.tag",
    "google.protobuf.Value.string_value",
}
"""Other fields that Envoy takes as values. Add one only if no text in it can be an expression."""
_COOKIE_NAMES = {"envoy.type.http.v3.Cookie.name"}
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_EXPANDED = {
    "envoy.config.core.v3.HeaderValue.value",
    "envoy.config.route.v3.RateLimit.Action.GenericKey.descriptor_value",
}
"""Values in which Envoy expands ``%COMMAND%``. A literal ``%`` is ``%%``."""
_COMMAND = re.compile(rf"%[^%]*{INJECTED}[^%]*%")


def in_nginx(files: FileSet) -> tuple[list[str], int]:
    """Return the tokens of NGINX's files with the word that are no quoted values, and the number
    of values with it.
    """
    structure, values = [], 0
    with tempfile.TemporaryDirectory() as directory:
        for path, file in files.files.items():
            if not path.endswith(".conf") or INJECTED.encode() not in file.content:
                continue
            copied = Path(directory) / "copy.conf"
            copied.write_bytes(file.content)
            for token, line, quoted in crossplane.lex(str(copied)):
                if INJECTED in token and quoted:
                    values += 1
                elif INJECTED in token:
                    structure.append(f"{path}:{line}: {token}")
    return structure, values


def in_envoy(resources: ResourceSet) -> tuple[list[str], int]:
    """Return the fields of Envoy's resources with the word that are no values, and the number of
    values with it.
    """
    structure, values = [], 0
    for kind, named in resources.by_type.items():
        for name, resource in named.items():
            if INJECTED in name:
                structure.append(f"name of {kind}: {name}")
            for place, field, text in _texts(any_pb2.Any(type_url=kind, value=resource.body)):
                if field is not None and _is_value(field, text):
                    values += 1
                else:
                    structure.append(f"{name}: {place}: {text}")
    return structure, values


def _is_value(field: FieldDescriptor, text: str) -> bool:
    """Return whether the characters of a text in a field are a value.

    The name of a header or cookie is one if it is a token.
    """
    name = field.full_name
    if _known_regex(field) == KnownRegex.HTTP_HEADER_NAME or name in _COOKIE_NAMES:
        return _TOKEN.fullmatch(text) is not None
    if name in _EXPANDED:
        return _COMMAND.search(text.replace("%%", "")) is None
    return name in _VALUES or name.startswith(_MATCHERS)


def _known_regex(field: FieldDescriptor) -> int:
    """Return the format of a field's text in Envoy's own rules of validation; 0 for none."""
    extensions: Any = field.GetOptions().Extensions
    rules = extensions[validate_pb2.rules]
    text = rules.repeated.items.string if field.is_repeated else rules.string
    return int(text.well_known_regex)


def _texts(message: Any) -> Iterator[tuple[str, FieldDescriptor | None, str]]:
    """Yield the places with the word in a message and in all messages in it, with their texts.

    The field is None for keys of maps and for bytes of unknown messages.
    """
    if isinstance(message, any_pb2.Any):
        name = message.type_url.rpartition("/")[2]
        if not name or name.startswith("gatehouse."):
            # Without a type, or described to the agent and not to Envoy.
            yield from _text(f"message {name}", None, message.value)
            return
        inner = symbol_database.Default().GetSymbol(name)()
        inner.ParseFromString(message.value)
        message = inner
    for field, content in message.ListFields():
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        for key in content if is_map else ():
            yield from _text(f"key of {field.full_name}", None, key)
        if is_map:
            items = list(content.values())
        else:
            items = content if field.is_repeated else [content]
        for item in items:
            if hasattr(item, "ListFields"):
                yield from _texts(item)
            else:
                yield from _text(field.full_name, field, item)


def _text(
    place: str, field: FieldDescriptor | None, content: Any
) -> Iterator[tuple[str, FieldDescriptor | None, str]]:
    text = content.decode("latin-1") if isinstance(content, bytes) else content
    if isinstance(text, str) and INJECTED in text:
        yield place, field, text
