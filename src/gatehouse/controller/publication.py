"""From IR to the data planes: one generator per Gateway, for the NGINX that it really has."""

from __future__ import annotations

import msgspec

from gatehouse.backends import nginx
from gatehouse.delivery import DataPlaneReport, Delivery
from gatehouse.ir import gateway as ir

Unsupported = tuple[tuple[str, str], ...]
"""Route names and why this NGINX cannot serve them as asked."""


class _Published(msgspec.Struct):
    generator: nginx.Generator
    capabilities: nginx.Capabilities
    source: ir.Gateway | None = None
    version: str = ""
    unsupported: Unsupported = ()


class Publisher:
    """Renders Gateways and publishes what changed."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._published: dict[str, _Published] = {}

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
        if generated.bundle.version != known.version:
            known.version = generated.bundle.version
            self._delivery.publish(gateway.name, generated.bundle)
        return known.unsupported

    def retain(self, names: set[str]) -> None:
        """Withdraw every Gateway that is not among ``names``."""
        for name in self._published.keys() - names:
            del self._published[name]
            self._delivery.withdraw(name)


def _capabilities(report: DataPlaneReport) -> nginx.Capabilities | None:
    """Give what every connected instance can do: that of the oldest NGINX among them."""
    return nginx.Capabilities.common(
        nginx.Capabilities.parse(
            instance.proxy, instance.modules, named_endpoints="endpoints" in instance.features
        )
        for instance in report.instances
        if instance.proxy
    )
