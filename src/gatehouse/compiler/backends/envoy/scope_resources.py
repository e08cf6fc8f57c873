"""Resources of scopes, each with the routes of one header value."""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.route.v3 import route_components_pb2 as components
from envoy.config.route.v3 import route_pb2, scoped_route_pb2

from gatehouse.compiler.backends.envoy.protobufs import truth, written
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import SCOPE_TYPE_URL, XdsResource


def scope_resource(
    name: str,
    hosts: Iterable[components.VirtualHost],
    origins: tuple[Origin, ...] = (),
    *,
    secret: bool = False,
    specific_headers_win: bool = False,
) -> XdsResource:
    """Return the resource of a scope.

    ``specific_headers_win``: header changes of a route follow those of its virtual host.
    """
    proto = scoped_route_pb2.ScopedRouteConfiguration(
        name=name,
        route_configuration=route_pb2.RouteConfiguration(
            name=name,
            virtual_hosts=hosts,
            ignore_port_in_host_matching=True,
            most_specific_header_mutations_wins=specific_headers_win,
            # A missing cluster must not invalidate all routes of a hostname.
            validate_clusters=truth(False),
        ),
    )
    proto.key.fragments.add(string_key=name)
    return XdsResource.make(SCOPE_TYPE_URL, name, written(proto), origins=origins, secret=secret)
