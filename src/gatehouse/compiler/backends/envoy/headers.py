"""Header modifications of requests to backends and of responses to clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec
from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.type.matcher.v3 import string_pb2

from gatehouse.compiler.backends.envoy import quoting
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir import http as ir

_OVERWRITE = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
_APPEND = base_pb2.HeaderValueOption.APPEND_IF_EXISTS_OR_ADD

MAX_CHANGES = 950
"""Maximum number of headers that a route or a share sets, adds or removes. Envoy permits 1000 of
each, including those that the compiler adds."""


HeaderTarget: TypeAlias = "components.Route | components.WeightedCluster.ClusterWeight"
"""Messages whose headers a route changes."""


def option(
    name: str, value: str, *, append: bool = False, keep_empty: bool = False
) -> base_pb2.HeaderValueOption:
    """Return the option that sets or appends a header; ``value`` may contain Envoy's format.

    ``keep_empty``: set it also if the value is empty. Never pass unescaped user input. Raises
    InvalidValueError for a header that is too long.
    """
    quoting.limited(name, quoting.MAX_HEADER_BYTES, "the name of a header")
    quoting.limited(value, quoting.MAX_HEADER_BYTES, f"the value of the header {name}")
    return base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key=name, value=value),
        append_action=_APPEND if append else _OVERWRITE,
        keep_empty_value=keep_empty,
    )


ENVOY_PREFIX = "x-envoy-"
"""Start of the names of headers that control Envoy. It obeys those of clients in private networks,
and those of responses."""


def without_prefix(prefix: str) -> mutation_rules_pb2.HeaderMutation:
    """Return the removal of all headers whose name starts with a prefix."""
    mutation = mutation_rules_pb2.HeaderMutation
    matcher = string_pb2.StringMatcher(prefix=prefix)
    return mutation(remove_on_match=mutation.RemoveOnMatch(key_matcher=matcher))


class RequestEdit(msgspec.Struct, frozen=True):
    """Changes of a request: Envoy changes Host separately from other headers."""

    edit: ir.HeaderEdit
    hostname: str | None = None


def split_request_edit(edit: ir.HeaderEdit) -> RequestEdit:
    """Split the Host off an edit. Raises InvalidValueError."""
    touched = {*edit.remove, *(item.name for item in edit.add)}
    if "host" in {name.lower() for name in touched}:
        raise InvalidValueError("header host: adding and removing is not supported by Envoy")
    hosts = [item.value for item in edit.set if item.name.lower() == "host"]
    if not hosts:
        return RequestEdit(edit)
    rest = tuple(item for item in edit.set if item.name.lower() != "host")
    return RequestEdit(msgspec.structs.replace(edit, set=rest), hosts[-1])


def apply_headers(
    proto: HeaderTarget, kind: Literal["request", "response"], edit: ir.HeaderEdit
) -> None:
    """Write an edit into a route or a share; ``kind`` is ``request`` or ``response``.

    Raises InvalidValueError.
    """
    changes = max(len(edit.remove), len(edit.set) + len(edit.add))
    if changes > MAX_CHANGES:
        raise InvalidValueError(
            f"rule changes {changes} headers of a {kind}: Envoy supports at most {MAX_CHANGES}"
        )
    if kind == "request":
        removed, added = proto.request_headers_to_remove, proto.request_headers_to_add
    else:
        removed, added = proto.response_headers_to_remove, proto.response_headers_to_add
    removed.extend(quoting.changed_header(name) for name in edit.remove)
    added.extend(_options(edit.set, append=False))
    added.extend(_options(edit.add, append=True))


def _options(items: Iterable[ir.HeaderValue], *, append: bool) -> list[base_pb2.HeaderValueOption]:
    return [
        option(
            quoting.changed_header(item.name),
            quoting.escape_percent(item.value, f"header {item.name}: value"),
            append=append,
            keep_empty=True,
        )
        for item in items
    ]
