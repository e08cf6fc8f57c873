"""The seam between the controller and the transports: bundles go out, reports come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from gatehouse.bundle import Bundle


class InstanceReport(msgspec.Struct, frozen=True):
    """What is known of one connected instance of a data plane."""

    instance: str
    """Who it is: the Pod's name."""
    desired: str = ""
    """Version of the bundle it was last told to have; empty before the first."""
    confirmed: str = ""
    """Version of the bundle it confirmed to be serving; empty before the first."""
    error: str = ""
    """Why it refused the desired version, in the proxy's own words; empty if it did not."""
    proxy: str = ""
    """Kind and version of its proxy, such as ``nginx/1.31.3``."""
    modules: tuple[str, ...] = ()
    """What the proxy was built with, in its own names."""
    features: frozenset[str] = frozenset()
    """What its agent can do beyond writing files, such as ``endpoints`` and ``connectors``."""


class DataPlaneReport(msgspec.Struct, frozen=True):
    """The connected instances of one gateway's data plane, sorted by name."""

    gateway: str
    """``namespace/name`` of the Gateway."""
    desired: str
    """Version of the published bundle; empty when none is."""
    instances: tuple[InstanceReport, ...] = ()

    @property
    def programmed(self) -> bool:
        """Whether at least one instance is connected and every one confirmed the version."""
        return bool(self.desired and self.instances) and all(
            instance.confirmed == self.desired for instance in self.instances
        )

    @property
    def error(self) -> str:
        """The first refusal of the desired version, prefixed with its instance; empty if none."""
        for instance in self.instances:
            if instance.error and instance.desired == self.desired:
                return f"{instance.instance}: {instance.error}"
        return ""


class Delivery(Protocol):
    """Carries bundles to data planes. Nothing here blocks; everything is idempotent."""

    on_report: Callable[[DataPlaneReport], None]
    """Called, in the event loop, whenever a gateway's report changed. Must not raise or block."""

    def publish(self, gateway: str, bundle: Bundle) -> None:
        """Make ``bundle`` the one that every instance of ``gateway`` is to have; latest wins."""

    def withdraw(self, gateway: str) -> None:
        """Forget ``gateway``: its instances keep what they have, and are told nothing more."""

    def report(self, gateway: str) -> DataPlaneReport:
        """Give the present report of ``gateway``."""
