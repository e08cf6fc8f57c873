"""SnippetsPolicy and SnippetsFilter: raw configuration, if the installation allows it."""

from __future__ import annotations

from typing import Literal

from gatehouse.apis import nginx_gateway as api
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.ir.settings import Snippet
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask

_CONTEXTS: dict[str, Literal["main", "http", "http.server", "http.server.location"]] = {
    "main": "main",
    "http": "http",
    "http.server": "http.server",
    "http.server.location": "http.server.location",
}


def rejection(ask: Ask, kind: str) -> str:
    """Return why snippets are rejected; empty if they are allowed."""
    if ask(settings, "").snippets:
        return ""
    return f"{kind}: snippets are not allowed: the controller runs without --snippets"


def snippets(source: api.SnippetsPolicy | api.SnippetsFilter) -> tuple[Snippet, ...]:
    """Return the snippets as IR."""
    metadata = source.metadata
    origin = Origin(type(source).__name__, metadata.namespace, metadata.name)
    return tuple(
        Snippet(origin, _CONTEXTS[each.context], each.value)
        for each in source.spec.snippets
        if each.context in _CONTEXTS
    )
