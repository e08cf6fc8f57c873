"""SnippetsPolicy and SnippetsFilter: raw configuration, if the installation allows it."""

from __future__ import annotations

from gatehouse.apis import nginx_gateway as api
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.compiled_filters import Filters
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.proxy_settings import NginxSnippet
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Key


def snippet_rejection(ask: Ask, kind: str) -> str:
    """Return why snippets are rejected; empty if they are allowed."""
    if ask(settings).snippets:
        return ""
    return f"{kind}: snippets are not allowed: the controller runs without --snippets"


def translate_snippets_filter(ask: Ask, key: Key) -> Filters | str:
    """Return the translation of a SnippetsFilter, or the problem."""
    problem = snippet_rejection(ask, key[0])
    return problem or Filters(Route(snippets=translate_snippets(ask.read(key))))


def translate_snippets(source: api.SnippetsPolicy | api.SnippetsFilter) -> tuple[NginxSnippet, ...]:
    """Return the snippets as IR."""
    metadata = source.metadata
    origin = Origin(type(source).__name__, metadata.namespace, metadata.name)
    return tuple(
        NginxSnippet(origin, snippet.context, snippet.value) for snippet in source.spec.snippets
    )
