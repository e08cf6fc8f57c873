"""Which GatewayClasses and Gateways are ours."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api import crd_version
from gatehouse.compiler.frontends.gateway_api.inputs import (
    CONTROLLERS,
    GATEWAYS,
    SETTINGS_KEY,
    Settings,
)
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table


def settings(ask: Ask, _: str = "") -> Settings:
    """Give the controller's settings."""
    found = ask.read(SETTINGS_KEY)
    return found if isinstance(found, Settings) else Settings()


def classes(ask: Ask, _: str = "") -> tuple[Key, ...]:
    """Give the GatewayClasses that name a controller of ours, sorted."""
    return tuple(sorted(key for name in CONTROLLERS for key in ask.read(("@classes", name))))


def gateways(ask: Ask, _: str = "") -> Table[Key, Key]:
    """Give the Gateways that are ours. Who asks of one asks :func:`ours`: others do not matter."""
    return ask.map(_kept, ask.read(GATEWAYS))


def _kept(ask: Ask, key: Key) -> Key | None:
    return key if ask(is_managed, key) else None


def is_managed(ask: Ask, key: Key) -> bool:
    """Whether there is such a Gateway of a class of ours; none is in another one's Gateway API."""
    return ask(controller_of, key) in CONTROLLERS and not ask(crd_version.is_incompatible, "")


def controller_of(ask: Ask, key: Key) -> str:
    """Give the controller that a Gateway's class names, or a GatewayClass itself; empty: none."""
    found = ask.read(key)
    if isinstance(found, gateway.Gateway):
        return ask(controller_of, ("GatewayClass", "", found.spec.gateway_class_name))
    return found.spec.controller_name if isinstance(found, gateway.GatewayClass) else ""


def controllers(ask: Ask, _: str = "") -> tuple[str, ...]:
    """Give those of our controllers that a class names, sorted."""
    return tuple(sorted({ask(controller_of, key) for key in ask(classes, "")}))
