"""Scopes: each exact name is a resource of its own, so that a change costs what it touches.

Envoy looks a name up by its header (:mod:`connections`), as it was written. What is not found, such
as a name that only a wildcard covers or one in upper case, goes by a filter that looks again: in
lower case, then in the scope of all that have no name of their own. One change among 5,000 names
took 80 ms in one RouteConfiguration, and 70 ms as virtual hosts of their own (VHDS); as a scope it
takes 2 ms however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.config.route.v3 import route_pb2, scoped_route_pb2

from gatehouse.compiler.backends.envoy import authentication, ext_authz, names, quoting, retries
from gatehouse.compiler.backends.envoy.protobufs import packed, truth, written
from gatehouse.compiler.backends.envoy.quoting import InvalidValueError
from gatehouse.compiler.backends.envoy.route_context import Context
from gatehouse.compiler.backends.envoy.routes import Unsupported, not_found, routes
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.xds.resources import SCOPE, Resource

OWN = "own"
"""In the metadata of a name's own virtual host, for the filter that looks again."""


class Scope(msgspec.Struct, frozen=True):
    """A resource, and what of its routes cannot be served."""

    resource: Resource
    unsupported: tuple[tuple[str, str], ...] = ()


def exact(name: str, host: ir.VirtualHost, context: Context) -> Scope:
    """Give the scope of an exact name."""
    unsupported: Unsupported = []
    made = _virtual_host(host, context, ["*"], host.hostname, unsupported)
    disabled = components.FilterConfig(disabled=True)
    made.typed_per_filter_config[names.SCOPES].CopyFrom(packed(disabled))
    made.metadata.filter_metadata[names.SCOPES].update({OWN: True})
    return Scope(_resource(name, [made], [host]), tuple(unsupported))


def wide(
    name: str, hosts: Iterable[ir.VirtualHost], elsewhere: Iterable[str], context: Context
) -> Scope:
    """Give the scope of all names that have none of their own.

    ``elsewhere``: names of other listeners, whose requests are misdirected (RFC 9110, 15.5.20).
    """
    unsupported: Unsupported = []
    served = [host for host in hosts if _named(host, unsupported)]
    made = [
        _virtual_host(host, context, [host.hostname or "*"], "", unsupported) for host in served
    ]
    domains = sorted(
        {each or "*" for each in elsewhere} - {host.hostname or "*" for host in served}
    )
    if domains:
        misdirected = components.VirtualHost(name="misdirected", domains=domains)
        route = misdirected.routes.add(match=components.RouteMatch(prefix="/"))
        route.direct_response.status = 421
        made.append(misdirected)
    return Scope(_resource(name, made, served), tuple(unsupported))


def _named(host: ir.VirtualHost, unsupported: Unsupported) -> bool:
    try:
        return not host.hostname or bool(quoting.hostname(host.hostname))
    except InvalidValueError as error:
        unsupported += [(route.name, str(error)) for route in host.routes]
        return False


def _virtual_host(
    host: ir.VirtualHost, context: Context, domains: list[str], only: str, unsupported: Unsupported
) -> Any:
    made = components.VirtualHost(name=host.hostname or "*", domains=domains)
    context = msgspec.structs.replace(context, taken=ext_authz.taken(host))
    made.routes.extend(ext_authz.routes(context, host))
    for route in host.routes:
        made.routes.extend(routes(context, route, only, unsupported))
    made.routes.append(not_found())
    made.retry_policy.CopyFrom(retries.harmless())
    return made


def _resource(name: str, hosts: list[Any], served: Iterable[ir.VirtualHost]) -> Resource:
    made = scoped_route_pb2.ScopedRouteConfiguration(
        name=name,
        route_configuration=route_pb2.RouteConfiguration(
            name=name,
            virtual_hosts=hosts,
            ignore_port_in_host_matching=True,
            most_specific_header_mutations_wins=True,
            # A cluster that is not there yet, or never, must not take all of a name's routes away.
            validate_clusters=truth(False),
        ),
    )
    made.key.fragments.add(string_key=name)
    origins = dict.fromkeys(
        "/".join(route.name.split("/")[:2]) for host in served for route in host.routes
    )
    secret = any(authentication.holds_secrets(r) for host in served for r in host.routes)
    return Resource.make(SCOPE, name, written(made), origins=tuple(origins), secret=secret)
