"""Route scopes that Envoy does not skip as unchanged.

Envoy processes the scopes of a response one by one and then passes them to its workers. If it
rejects one, its main thread keeps those before it, and the workers get none. It skips them when it
gets them again, because their content is equal. So each scope is sent with other content. A relay
gets the original from the control plane, and makes the copies for its Envoy.
"""

from __future__ import annotations

import itertools
import secrets

import msgspec
from envoy.config.route.v3 import scoped_route_pb2

from gatehouse.dataplane.xds.resources import SCOPE_TYPE_URL, XdsResource

SCOPE_METADATA = "gatehouse"
"""Place of a :class:`ScopeCopy` in the metadata of a route configuration."""


class ScopeCopy(msgspec.Struct, frozen=True):
    """Identity of a copy, which Envoy shows in its configuration."""

    version: str
    """Version of the resource."""
    response: str
    """Response with the copy. No other response, of any stream, has the same value."""


class DistinctScopes:
    """Copies of scopes for one stream."""

    def __init__(self) -> None:
        stream = secrets.token_hex(6)
        self._responses = (f"{stream}/{number}" for number in itertools.count())
        self.sent: dict[str, str] = {}
        """Newest response with each scope, by name."""

    def copies(self, resources: tuple[XdsResource, ...]) -> tuple[XdsResource, ...]:
        """Return the resources of a response as they are sent. Versions stay the same."""
        if not resources or resources[0].type_url != SCOPE_TYPE_URL:
            return resources
        response = next(self._responses)
        self.sent.update((resource.name, response) for resource in resources)
        return tuple(_copy(resource, response) for resource in resources)


def _copy(resource: XdsResource, response: str) -> XdsResource:
    proto = scoped_route_pb2.ScopedRouteConfiguration()
    metadata = proto.route_configuration.metadata.filter_metadata[SCOPE_METADATA]
    metadata.update(msgspec.to_builtins(ScopeCopy(resource.version, response)))
    return XdsResource(
        resource.type_url,
        resource.name,
        # A message after the end of a serialised message is merged into it.
        resource.body + proto.SerializeToString(),
        resource.version,
        resource.origins,
        resource.secret,
    )
