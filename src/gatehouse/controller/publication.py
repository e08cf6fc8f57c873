"""From IR to the data planes: one generator per Gateway, for the NGINX that it really has."""

from __future__ import annotations

import msgspec

from gatehouse.backends import nginx
from gatehouse.bundle import Bundle
from gatehouse.delivery import DataPlaneReport, Delivery
from gatehouse.ir import gateway as ir

Unsupported = tuple[tuple[str, str], ...]
"""Route names and why this NGINX cannot serve them as asked."""


class _Published(msgspec.Struct):
    generator: nginx.Generator
    capabilities: nginx.Capabilities
    source: ir.Gateway | None = None
    unsupported: Unsupported = ()


class _History(msgspec.Struct):
    """Bundles of one Gateway, numbered from 1 as they were published."""

    newest: int = 0
    numbers: dict[str, int] = {}
    """By version; of those that an instance may still confirm."""
    version: str = ""


class Publisher:
    """Renders Gateways and publishes what changed."""

    def __init__(self, delivery: Delivery[Bundle]) -> None:
        self._delivery = delivery
        self._published: dict[str, _Published] = {}
        self._histories: dict[str, _History] = {}

    def publish(self, gateway: ir.Gateway) -> Unsupported:
        """Render and publish ``gateway``; give what its NGINX cannot do.

        Nothing is rendered before an instance is connected: only it says which NGINX it has.
        """
        capabilities = _capabilities(self._delivery.report(gateway.name))
        if capabilities is None:
            return ()
        known = self._published.get(gateway.name)
        if known is None or known.capabilities != capabilities:
            known = _Published(nginx.Generator(capabilities), capabilities)
            self._published[gateway.name] = known
        if known.source is gateway:
            return known.unsupported
        generated = known.generator.generate(gateway)
        known.source, known.unsupported = gateway, generated.unsupported
        history = self._histories.setdefault(gateway.name, _History())
        version = generated.bundle.version
        if version != history.version:
            served = self.served(gateway.name)
            kept = {each: n for each, n in history.numbers.items() if n >= served}
            history.newest += 1
            history.version, history.numbers = version, {**kept, version: history.newest}
            self._delivery.publish(gateway.name, generated.bundle)
        return known.unsupported

    def newest(self, name: str) -> int:
        """Give the number of the newest bundle of a Gateway; 0 before the first."""
        history = self._histories.get(name)
        return history.newest if history else 0

    def served(self, name: str) -> int:
        """Give the number of the bundle that every instance has confirmed, or a newer one of."""
        history = self._histories.get(name, _History())
        confirmed = self._delivery.report(name).confirmed
        return min((history.numbers.get(version, 0) for version in confirmed), default=0)

    def retain(self, names: set[str]) -> None:
        """Withdraw every Gateway that is not among ``names``."""
        for name in self._published.keys() - names:
            del self._published[name]
            self._histories.pop(name, None)
            self._delivery.withdraw(name)


def _capabilities(report: DataPlaneReport) -> nginx.Capabilities | None:
    """Give what every connected instance can do: that of the oldest NGINX among them."""
    return nginx.Capabilities.common(
        nginx.Capabilities.parse(
            each.proxy,
            each.modules,
            named_endpoints="endpoints" in each.features,
            connectors="connectors" in each.features,
            authenticators="authenticators" in each.features,
            api_actions="api-action" in each.features,
        )
        for each in report.equipment
    )
