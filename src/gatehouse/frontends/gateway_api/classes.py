"""Which GatewayClasses and Gateways are ours."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.frontends.gateway_api import bundle
from gatehouse.frontends.gateway_api.inputs import CONTROLLERS, SETTINGS_KEY, Settings
from gatehouse.query import Ask, Key


def settings(ask: Ask, _: str = "") -> Settings:
    """Give the controller's settings."""
    found = ask.read(SETTINGS_KEY)
    return found if isinstance(found, Settings) else Settings()


def classes(ask: Ask, _: str = "") -> tuple[Key, ...]:
    """Give the GatewayClasses that name a controller of ours, sorted."""
    return tuple(sorted(key for name in CONTROLLERS for key in ask.read(("@classes", name))))


def gateways(ask: Ask, _: str = "") -> tuple[Key, ...]:
    """Give the Gateways of our classes, sorted; none of a Gateway API that is another one."""
    if ask(bundle.foreign, ""):
        return ()
    found = [key for owner in ask(classes, "") for key in ask.read(("@gateways", owner[2]))]
    return tuple(sorted(key for key in found if isinstance(ask.read(key), gateway.Gateway)))


def controller_of(ask: Ask, key: Key) -> str:
    """Give the controller that a Gateway's class names, or a GatewayClass itself; empty: none."""
    found = ask.read(key)
    if isinstance(found, gateway.Gateway):
        return ask(controller_of, ("GatewayClass", "", found.spec.gateway_class_name))
    return found.spec.controller_name if isinstance(found, gateway.GatewayClass) else ""


def controllers(ask: Ask, _: str = "") -> tuple[str, ...]:
    """Give those of our controllers that a class names, sorted."""
    return tuple(sorted({ask(controller_of, key) for key in ask(classes, "")}))
