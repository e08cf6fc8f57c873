"""Route scopes that Envoy does not skip as unchanged.

Envoy processes the scopes of a response one by one and then passes them to its workers. If it
rejects one, its main thread keeps those before it, and the workers get none. It skips them when it
gets them again, because their content is equal. So each scope is sent with other content. A relay
gets the original from the control plane, and makes the copies for its Envoy.
"""

from __future__ import annotations

import itertools
import secrets

from envoy.config.route.v3 import scoped_route_pb2

from gatehouse.dataplane.xds.resources import SCOPE_TYPE_URL, XdsResource

_METADATA, _FIELD = "gatehouse", "copy"
"""Place of the number of a copy in the metadata of its route configuration."""


class DistinctScopes:
    """Copies of scopes for one stream. They differ from those of every other stream, too."""

    def __init__(self) -> None:
        stream = secrets.token_hex(6)
        self._marks = (f"{stream}/{number}" for number in itertools.count())

    def copies(self, resources: tuple[XdsResource, ...]) -> tuple[XdsResource, ...]:
        """Return the resources of a response as they are sent. Versions stay the same."""
        if not resources or resources[0].type_url != SCOPE_TYPE_URL:
            return resources
        proto = scoped_route_pb2.ScopedRouteConfiguration()
        metadata = proto.route_configuration.metadata.filter_metadata[_METADATA]
        metadata.update({_FIELD: next(self._marks)})
        # Fields after the end of a serialised message are merged into it.
        end = proto.SerializeToString()
        return tuple(_with_end(resource, end) for resource in resources)


def _with_end(resource: XdsResource, end: bytes) -> XdsResource:
    return XdsResource(
        resource.type_url,
        resource.name,
        resource.body + end,
        resource.version,
        resource.origins,
        resource.secret,
    )
