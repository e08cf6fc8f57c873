"""GatewayClasses and Gateways that this controller manages."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.apis.gateway import CONTROLLERS
from gatehouse.compiler.frontends.gateway_api import crd_version
from gatehouse.compiler.frontends.gateway_api.inputs import (
    GATEWAYS_KEY,
    SETTINGS_KEY,
    ControllerSettings,
)
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table


def settings(ask: Ask) -> ControllerSettings:
    """Return the controller's settings."""
    resource = ask.read(SETTINGS_KEY)
    return resource if isinstance(resource, ControllerSettings) else ControllerSettings()


def classes(ask: Ask) -> tuple[Key, ...]:
    """Return the GatewayClasses that name a controller of :data:`CONTROLLERS`, sorted."""
    return tuple(sorted(key for name in CONTROLLERS for key in ask.read(("@classes", name))))


def gateways(ask: Ask) -> Table[Key, Key]:
    """Return the managed Gateways.

    A query about one Gateway uses :func:`is_managed_gateway`, so that it does not depend on all of
    them.
    """
    return ask.map(_if_managed, ask.read(GATEWAYS_KEY))


def _if_managed(ask: Ask, key: Key) -> Key | None:
    return key if ask(is_managed_gateway, key) else None


def is_managed_gateway(ask: Ask, key: Key) -> bool:
    """Return whether a Gateway exists and its class names a controller of :data:`CONTROLLERS`.

    False for every Gateway if the cluster's Gateway API has another major version.
    """
    return ask(class_controller, key) in CONTROLLERS and not ask(crd_version.is_incompatible)


def class_controller(ask: Ask, key: Key) -> str:
    """Return the controller of a Gateway's class or of a GatewayClass; empty if there is none."""
    resource = ask.read(key)
    if isinstance(resource, gateway.Gateway):
        return ask(class_controller, ("GatewayClass", "", resource.spec.gateway_class_name))
    return resource.spec.controller_name if isinstance(resource, gateway.GatewayClass) else ""


def controllers(ask: Ask) -> tuple[str, ...]:
    """Return the controllers of :data:`CONTROLLERS` that a GatewayClass names, sorted."""
    return tuple(sorted({ask(class_controller, key) for key in ask(classes)}))
