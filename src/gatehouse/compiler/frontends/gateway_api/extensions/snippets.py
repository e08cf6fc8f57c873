"""SnippetsPolicy and SnippetsFilter: raw configuration, if this installation allows it."""

from __future__ import annotations

from typing import Literal

from gatehouse.apis import nginx_gateway as api
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.ir.settings import Snippet
from gatehouse.incremental.query import Ask

_CONTEXTS: dict[str, Literal["main", "http", "http.server", "http.server.location"]] = {
    "main": "main",
    "http": "http",
    "http.server": "http.server",
    "http.server.location": "http.server.location",
}


def refused(ask: Ask, kind: str) -> str:
    """Say why snippets are not honoured; empty if they are."""
    if ask(settings, "").snippets:
        return ""
    return f"{kind}: snippets are not allowed by this installation (--snippets)"


def snippets(found: api.SnippetsPolicy | api.SnippetsFilter) -> tuple[Snippet, ...]:
    """Give the IR's form."""
    metadata = found.metadata
    name = f"{type(found).__name__} {metadata.namespace}/{metadata.name}"
    return tuple(
        Snippet(name, _CONTEXTS[each.context], each.value)
        for each in found.spec.snippets
        if each.context in _CONTEXTS
    )
