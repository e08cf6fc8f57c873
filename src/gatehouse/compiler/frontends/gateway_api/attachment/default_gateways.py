"""Default Gateways: those to which routes attach that ask for one and name none (GEP-3793)."""

from __future__ import annotations

from gatehouse.apis.gateway import GATEWAY_API_GROUP
from gatehouse.apis.routes import ParentRef
from gatehouse.compiler.frontends.gateway_api.classes import is_managed_gateway
from gatehouse.compiler.frontends.gateway_api.inputs import DEFAULT_GATEWAYS_KEY
from gatehouse.compiler.frontends.gateway_api.listeners.listener_sets import created
from gatehouse.incremental.query import Ask, Key


def default_gateways(ask: Ask) -> tuple[Key, ...]:
    """Return the managed default Gateways, the oldest first."""
    managed = [key for key in ask.read(DEFAULT_GATEWAYS_KEY) if ask(is_managed_gateway, key)]
    return tuple(sorted(managed, key=lambda key: (ask(created, key), key)))


def implied_parent(gateway: Key) -> ParentRef:
    """Return the parentRef that a route with ``useDefaultGateways`` has without naming it."""
    return ParentRef(gateway[2], GATEWAY_API_GROUP, "Gateway", gateway[1])
