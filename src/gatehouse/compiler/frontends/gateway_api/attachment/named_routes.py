"""Routes that name a Gateway or one of its ListenerSets, or that ask for default Gateways if it is
one; attached or not."""

from __future__ import annotations

from gatehouse.apis.gateway import DEFAULT_SCOPE, Gateway
from gatehouse.compiler.frontends.gateway_api.inputs import (
    DEFAULT_PARENT,
    routes_by_parent,
    routes_with_expressions,
)
from gatehouse.compiler.frontends.gateway_api.listeners.listener_sets import listener_owners
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table


def parents_of_routes(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Return the parents of the routes of a Gateway: itself, ListenerSets, and the default."""
    owners, own = ask(listener_owners, key), ask.read(key)
    is_default = isinstance(own, Gateway) and own.spec.default_scope == DEFAULT_SCOPE
    return (*owners, DEFAULT_PARENT) if is_default else owners


def routes_of(ask: Ask, key: Key) -> Table[Key, Key]:
    """Return the routes that may attach to a Gateway or one of its ListenerSets."""
    return ask.merge(
        tuple(ask.read(routes_by_parent(owner)) for owner in ask(parents_of_routes, key))
    )


def expression_routes_of(ask: Ask, key: Key) -> Table[Key, Key]:
    """Return the same routes as far as their matches have regular expressions."""
    return ask.merge(
        tuple(ask.read(routes_with_expressions(owner)) for owner in ask(parents_of_routes, key))
    )
