"""Interface between the controller and the transports: published content and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Protocol, TypeVar

import msgspec

from gatehouse.dataplane import features
from gatehouse.dataplane.limit_use import LimitUse
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.unready_servers import UnreadyServers
from gatehouse.dataplane.upstream_name import UpstreamName

Content_contra = TypeVar("Content_contra", contravariant=True)


class Rejection(msgspec.Struct, frozen=True):
    """A fragment or resource that an instance rejected. The instance serves the rest."""

    origins: tuple[Origin, ...]
    """Objects that the rejected content was generated from."""
    reason: str
    """Error message of the proxy."""
    transient: bool = False
    """True if it may end without a change of objects: another program has the port."""


class InstanceReport(msgspec.Struct, frozen=True):
    """State of one connected instance of a data plane."""

    instance: str
    """Name of the instance: the Pod's name."""
    desired: str = ""
    """Version that was last sent to it; empty before the first."""
    confirmed: str = ""
    """Version that it confirmed to be serving; empty before the first."""
    error: str = ""
    """Error message of the proxy if it rejected the desired version; empty if it did not."""
    proxy: str = ""
    """Kind and version of its proxy, such as ``nginx/1.31.3``."""
    modules: tuple[str, ...] = ()
    """Modules or extensions the proxy was built with, by the proxy's names for them."""
    features: frozenset[str] = frozenset()
    """Features of the agent, such as ``endpoints`` and ``connectors``."""
    rejected: tuple[Rejection, ...] = ()
    """Rejected content. A version is confirmed if everything else of it is served."""
    unhealthy: str = ""
    """Reason why the proxy serves nothing; empty if no problem is known."""
    unready_servers: UnreadyServers = MappingProxyType({})
    """Kube-apiservers that are not ready at this instance."""
    limit_use: LimitUse | None = None
    """Use of shared limits; None if it has not been reported."""
    rejected_version: str = ""
    """Version that its proxy rejected last; empty after it confirmed another one."""
    rejection: str = ""
    """Error message of the proxy about that version."""
    serving: bool = False
    """True if it is known to serve some version, of this process or an earlier one."""
    takes_trials: bool = False
    """True if it gets trials: it only tests them, or serves nothing and does not become ready."""

    @property
    def lasting_rejections(self) -> tuple[Rejection, ...]:
        """Rejections that end only with a change of objects."""
        return tuple(rejection for rejection in self.rejected if not rejection.transient)


class InstanceCapabilities(msgspec.Struct, frozen=True):
    """Capabilities of an instance, as in its :class:`InstanceReport`."""

    proxy: str
    modules: tuple[str, ...]
    features: frozenset[str]


class DataPlaneReport(msgspec.Struct, frozen=True, dict=True):
    """The connected instances of one Gateway's data plane, sorted by name.

    There may be thousands, so aggregates are computed once for each report.
    """

    gateway: str
    """``namespace/name`` of the Gateway."""
    desired: str
    """Published version; empty if none is published."""
    instances: tuple[InstanceReport, ...] = ()

    @property
    def programmed(self) -> bool:
        """True if at least one instance is connected and all have confirmed the version."""
        return bool(self.desired) and self.confirmed == {self.desired}

    @property
    def complete(self) -> bool:
        """True if it is programmed, and no instance rejects content of the version."""
        return self.programmed and not any(one.lasting_rejections for one in self.instances)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the connected instances."""
        return tuple(instance.instance for instance in self.instances)

    @cached_property
    def confirmed(self) -> frozenset[str]:
        """Versions that instances confirmed. Contains "" if an instance has not confirmed any."""
        return frozenset(instance.confirmed for instance in self.instances)

    @property
    def proxies(self) -> tuple[str, ...]:
        """Kinds and versions of the proxies, sorted."""
        return tuple(sorted({instance.proxy for instance in self.instances}))

    @property
    def serving(self) -> bool:
        """True if an instance is known to serve some version."""
        return any(instance.serving for instance in self.instances)

    @property
    def takes_trials(self) -> bool:
        """True if an instance gets trials."""
        return any(instance.takes_trials for instance in self.instances)

    @cached_property
    def equipment(self) -> frozenset[InstanceCapabilities]:
        """Capabilities that instances have reported; usually the same for all."""
        return frozenset(
            InstanceCapabilities(instance.proxy, instance.modules, instance.features)
            for instance in self.instances
            if instance.proxy
        )

    @cached_property
    def error(self) -> str:
        """First rejection of the desired version, prefixed with the instance; empty if none."""
        for instance in self.instances:
            if instance.error and instance.desired == self.desired:
                return f"{instance.instance}: {instance.error}"
        return ""

    @cached_property
    def unhealthy(self) -> str:
        """First instance whose proxy serves nothing, and the reason; empty if none."""
        for instance in self.instances:
            if instance.unhealthy:
                return f"{instance.instance}: {instance.unhealthy}"
        return ""

    @cached_property
    def unready_servers(self) -> Mapping[str, tuple[str, ...]]:
        """Servers that are not ready at an instance, as messages by name of the UpstreamCluster."""
        counts = Counter(
            (cluster, server, reason)
            for instance in self.instances
            for cluster, reasons in instance.unready_servers.items()
            for server, reason in reasons.items()
        )
        messages: dict[str, tuple[str, ...]] = {}
        for (cluster, server, reason), count in sorted(counts.items()):
            some = f" (at {count} of {len(self.instances)} data planes)"
            message = f"{server}: {reason}{some if count < len(self.instances) else ''}"
            messages[cluster] = (*messages.get(cluster, ()), message)
        return messages

    @cached_property
    def sharing(self) -> frozenset[str]:
        """Names of the instances whose agents serve shares of limits."""
        return frozenset(
            instance.instance
            for instance in self.instances
            if features.LIMIT_SHARES in instance.features
        )

    @cached_property
    def limit_use(self) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
        """Use of shared limits by UpstreamCluster, instance and schema."""
        result: dict[str, dict[str, Mapping[str, int]]] = {}
        for instance in self.instances:
            for cluster, use in (instance.limit_use or {}).items():
                result.setdefault(cluster, {})[instance.instance] = use
        return result

    @cached_property
    def rejected(self) -> tuple[tuple[Origin, str], ...]:
        """Objects with content that an instance rejected, and the reasons; sorted."""
        return tuple(
            sorted(
                {
                    (origin, rejection.reason)
                    for instance in self.instances
                    for rejection in instance.rejected
                    for origin in rejection.origins
                }
            )
        )


class HostReport(msgspec.Struct, frozen=True):
    """State of one host of an external load balancer."""

    host: str
    """URL of the NGINX Plus API, or the name of a machine."""
    version: str = ""
    """Version that the host was last seen to hold completely; empty if none yet."""
    server: str = ""
    """Server name and version that the host reports."""
    api: int = 0
    """Version of the NGINX Plus API in use; 0 if none yet."""
    failing: tuple[tuple[str, str], ...] = ()
    """Upstreams that could not be changed, each with the host's error message."""
    error: str = ""
    """Reason why the host cannot be reached; empty if it can."""
    behind: int = 0
    """Number of upstreams not known to be in their desired state."""
    empty: frozenset[UpstreamName] = frozenset()
    """Upstreams that were to be emptied and are empty."""

    @property
    def trouble(self) -> str:
        """Current problem in one line; empty if none."""
        if self.error or not self.failing:
            return self.error
        name, message = self.failing[0]
        more = f" (and {len(self.failing) - 1} more)" if len(self.failing) > 1 else ""
        return f"{name}: {message}{more}"


class Delivery(Protocol[Content_contra]):
    """Delivers file sets or resource sets to data planes. Methods do not block and are
    idempotent."""

    def publish(self, gateway: str, content: Content_contra, /) -> None:
        """Make ``content`` the desired content of all instances of ``gateway``. The latest wins."""

    def withdraw(self, gateway: str) -> None:
        """Stop publishing for ``gateway``. Its instances keep their configuration."""

    def report(self, gateway: str) -> DataPlaneReport:
        """Return the current report of ``gateway``."""
