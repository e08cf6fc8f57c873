"""Source of a gateway for back ends: its IR, and the capabilities of its proxies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gatehouse.compiler.ir import gateway as ir
from gatehouse.incremental.query import Ask, Key


class GatewaySource(msgspec.Struct, frozen=True):
    """A gateway as an argument of the queries of back ends."""

    name: str
    """``namespace/name``."""
    configuration: Callable[[Ask, Key], ir.GatewayConfiguration | None]
    """Query for the IR."""
    key: Key
    """Argument of that query."""
    capabilities: Key
    """Key of the input with the capabilities of the proxies, as the back end declares them."""


def gateway_configuration(ask: Ask, gateway: GatewaySource) -> ir.GatewayConfiguration:
    """Return the IR of a gateway. Plain function: a caller depends on everything in it."""
    configuration = ask(gateway.configuration, gateway.key)
    return configuration if configuration is not None else ir.GatewayConfiguration(gateway.name)


def capabilities(ask: Ask, gateway: GatewaySource) -> Any:
    """Return the capabilities of the proxies of a gateway. Plain function."""
    return ask.read(gateway.capabilities)
