"""Which GatewayClasses and Gateways are ours."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.frontends.gateway_api.inputs import SETTINGS_KEY, Settings
from gatehouse.query import Ask, Key


def settings(ask: Ask, _: str = "") -> Settings:
    """Give the controller's settings."""
    found = ask.read(SETTINGS_KEY)
    return found if isinstance(found, Settings) else Settings()


def classes(ask: Ask, _: str = "") -> tuple[Key, ...]:
    """Give the GatewayClasses that name our controller, sorted."""
    name = ask(settings, "").controller_name
    return tuple(ask.read(("@classes", name)))


def gateways(ask: Ask, _: str = "") -> tuple[Key, ...]:
    """Give the Gateways of our classes, sorted."""
    found = [key for owner in ask(classes, "") for key in ask.read(("@gateways", owner[2]))]
    return tuple(sorted(key for key in found if isinstance(ask.read(key), gateway.Gateway)))
