"""Report of a relay on its Envoy to the control plane."""

from __future__ import annotations

from types import MappingProxyType

import msgspec
from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.dataplane.limit_use import LimitUse, encode_limit_use
from gatehouse.dataplane.unready_servers import UnreadyServers
from gatehouse.dataplane.xds import delta


class HealthReport(msgspec.Struct, frozen=True):
    """Health of Envoy, and what the agent learned from it."""

    unhealthy: str = ""
    """Reason why Envoy is not healthy; empty if it is."""
    unready: UnreadyServers = MappingProxyType({})
    """Servers that are not ready."""
    use: LimitUse | None = None
    """Use of limits that data planes share; None if not known."""
    instance: str = ""
    """Name under which this data plane has shares of these limits."""

    def request(self) -> discovery_pb2.DeltaDiscoveryRequest:
        """Return the message to the control plane."""
        use = None if self.use is None else encode_limit_use(self.instance, self.use)
        return delta.health_request(self.unhealthy, self.unready, use)
