"""What is published of every Gateway, on the line of its class, and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.compiler.ir import gateway as ir
from gatehouse.controller.pipelines import Pipeline, Unsupported
from gatehouse.dataplane.delivery import DataPlaneReport


class _Published(msgspec.Struct):
    """What was published of one Gateway, numbered from 1."""

    controller: str
    newest: int = 0
    numbers: dict[str, int] = {}
    """By version; of those that an instance may still confirm."""
    version: str = ""


class Publisher:
    """Renders Gateways and publishes what changed."""

    def __init__(self, lines: Mapping[str, Pipeline]) -> None:
        """``lines``: by the controller's name that a GatewayClass gives."""
        self._lines = lines
        self._published: dict[str, _Published] = {}

    def publish(self, gateway: ir.Gateway, controller: str) -> Unsupported:
        """Render and publish ``gateway``; give what its data planes cannot or will not do."""
        name = gateway.name
        known = self._published.get(name)
        if known is None or known.controller != controller:
            # Another line goes on counting: somebody may wait for what the one before published.
            newest = self.latest_number(name)
            self.withdraw(name)
            known = self._published[name] = _Published(controller, newest)
        rendered = self._lines[controller].render(gateway)
        if rendered is None:
            return ()
        if rendered.version != known.version:
            served = self.confirmed_number(name)
            kept = {each: n for each, n in known.numbers.items() if n >= served}
            known.newest += 1
            known.version = rendered.version
            known.numbers = {**kept, rendered.version: known.newest}
            rendered.publish()
        return (*rendered.unsupported, *self.report(name).rejected)

    def report(self, name: str) -> DataPlaneReport:
        """Give the present report of a Gateway; that of none, before it was published."""
        known = self._published.get(name)
        if known is None:
            return DataPlaneReport(gateway=name, desired="")
        return self._lines[known.controller].report(name)

    def latest_number(self, name: str) -> int:
        """Give the number of what was published last of a Gateway; 0 before the first."""
        known = self._published.get(name)
        return known.newest if known else 0

    def confirmed_number(self, name: str) -> int:
        """Give the number of what every instance has confirmed, or something newer."""
        known = self._published.get(name)
        if known is None:
            return 0
        confirmed = self.report(name).confirmed
        return min((known.numbers.get(version, 0) for version in confirmed), default=0)

    def withdraw_except(self, names: set[str]) -> None:
        """Withdraw every Gateway that is not among ``names``."""
        for name in self._published.keys() - names:
            self.withdraw(name)

    def withdraw(self, name: str) -> None:
        """Have a Gateway served no more by us, if it was."""
        known = self._published.pop(name, None)
        if known is not None:
            self._lines[known.controller].withdraw(name)
