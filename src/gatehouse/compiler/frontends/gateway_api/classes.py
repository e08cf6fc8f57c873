"""GatewayClasses and Gateways that this controller manages."""

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
    """Return the controller's settings."""
    found = ask.read(SETTINGS_KEY)
    return found if isinstance(found, Settings) else Settings()


def classes(ask: Ask, _: str = "") -> tuple[Key, ...]:
    """Return the GatewayClasses that name a controller of :data:`CONTROLLERS`, sorted."""
    return tuple(sorted(key for name in CONTROLLERS for key in ask.read(("@classes", name))))


def gateways(ask: Ask, _: str = "") -> Table[Key, Key]:
    """Return the managed Gateways.

    A query about one Gateway uses :func:`is_managed`, so that it does not depend on all of them.
    """
    return ask.map(_if_managed, ask.read(GATEWAYS))


def _if_managed(ask: Ask, key: Key) -> Key | None:
    return key if ask(is_managed, key) else None


def is_managed(ask: Ask, key: Key) -> bool:
    """Return whether a Gateway exists and its class names a controller of :data:`CONTROLLERS`.

    False for every Gateway if the cluster's Gateway API has another major version.
    """
    return ask(controller_of, key) in CONTROLLERS and not ask(crd_version.is_incompatible, "")


def controller_of(ask: Ask, key: Key) -> str:
    """Return the controller of a Gateway's class or of a GatewayClass; empty if there is none."""
    found = ask.read(key)
    if isinstance(found, gateway.Gateway):
        return ask(controller_of, ("GatewayClass", "", found.spec.gateway_class_name))
    return found.spec.controller_name if isinstance(found, gateway.GatewayClass) else ""


def controllers(ask: Ask, _: str = "") -> tuple[str, ...]:
    """Return the controllers of :data:`CONTROLLERS` that a GatewayClass names, sorted."""
    return tuple(sorted({ask(controller_of, key) for key in ask(classes, "")}))
