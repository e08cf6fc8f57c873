"""The seam between the controller and the transports: bundles go out, reports come back."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol, TypeVar

import msgspec

from gatehouse.dataplane.upstream_name import UpstreamName

Content_contra = TypeVar("Content_contra", contravariant=True)


class Rejection(msgspec.Struct, frozen=True):
    """A part of what was published that an instance does not take; it serves all else."""

    origins: tuple[str, ...]
    """The objects that the part was made from."""
    reason: str
    """In the proxy's own words."""


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
    rejected: tuple[Rejection, ...] = ()
    """Parts that it does not take; it has confirmed a version when it has all else of it."""
    unhealthy: str = ""
    """Why its proxy serves nothing; empty: nothing is known of that."""


class InstanceCapabilities(msgspec.Struct, frozen=True):
    """What instances have, as an :class:`InstanceReport` says it of one."""

    proxy: str
    modules: tuple[str, ...]
    features: frozenset[str]


class DataPlaneReport(msgspec.Struct, frozen=True, dict=True):
    """The connected instances of one gateway's data plane, sorted by name.

    There may be thousands, so what is asked of all of them is found once for each report.
    """

    gateway: str
    """``namespace/name`` of the Gateway."""
    desired: str
    """Version of the published bundle; empty when none is."""
    instances: tuple[InstanceReport, ...] = ()

    @property
    def programmed(self) -> bool:
        """Whether at least one instance is connected and every one confirmed the version."""
        return bool(self.desired) and self.confirmed == {self.desired}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Who is connected."""
        return tuple(instance.instance for instance in self.instances)

    @cached_property
    def confirmed(self) -> frozenset[str]:
        """The versions that instances confirmed; "" is among them if one has confirmed none."""
        return frozenset(instance.confirmed for instance in self.instances)

    @cached_property
    def equipment(self) -> frozenset[InstanceCapabilities]:
        """What instances have, as far as they have said it; as a rule all have the same."""
        return frozenset(
            InstanceCapabilities(instance.proxy, instance.modules, instance.features)
            for instance in self.instances
            if instance.proxy
        )

    @cached_property
    def error(self) -> str:
        """The first refusal of the desired version, prefixed with its instance; empty if none."""
        for instance in self.instances:
            if instance.error and instance.desired == self.desired:
                return f"{instance.instance}: {instance.error}"
        return ""

    @cached_property
    def unhealthy(self) -> str:
        """The first proxy that serves nothing: its instance, and why; empty if there is none."""
        for instance in self.instances:
            if instance.unhealthy:
                return f"{instance.instance}: {instance.unhealthy}"
        return ""

    @cached_property
    def rejected(self) -> tuple[tuple[str, str], ...]:
        """Names of objects whose part some instance does not take, and why; sorted."""
        return tuple(
            sorted(
                {
                    (origin, refusal.reason)
                    for instance in self.instances
                    for refusal in instance.rejected
                    for origin in refusal.origins
                }
            )
        )


class HostReport(msgspec.Struct, frozen=True):
    """What is known of one load balancer outside."""

    host: str
    """Its URL, or the name of a machine that is ours in whole."""
    version: str = ""
    """Of what it was last seen to hold in whole; empty: nothing yet."""
    server: str = ""
    """What it says it is."""
    api: int = 0
    """The version of its API that is spoken; 0: none yet."""
    failing: tuple[tuple[str, str], ...] = ()
    """Upstreams that could not be changed, each with the host's own words."""
    error: str = ""
    """Why the host cannot be spoken to; empty: it can."""
    behind: int = 0
    """Upstreams that are not known to hold what they are to hold."""
    empty: frozenset[UpstreamName] = frozenset()
    """Upstreams that were to be emptied, and are."""

    @property
    def trouble(self) -> str:
        """What is wrong, for one line; empty: nothing."""
        if self.error or not self.failing:
            return self.error
        name, words = self.failing[0]
        more = f" (and {len(self.failing) - 1} more)" if len(self.failing) > 1 else ""
        return f"{name}: {words}{more}"


class Delivery(Protocol[Content_contra]):
    """Carries bundles, or resources, to data planes. Nothing here blocks; all is idempotent."""

    on_report: Callable[[str], None]
    """Called, in the event loop, with a gateway whose report changed. Must not raise or block."""

    def publish(self, gateway: str, content: Content_contra, /) -> None:
        """Make ``content`` the one that every instance of ``gateway`` is to have; latest wins."""

    def withdraw(self, gateway: str) -> None:
        """Forget ``gateway``: its instances keep what they have, and are told nothing more."""

    def report(self, gateway: str) -> DataPlaneReport:
        """Give the present report of ``gateway``."""
