"""Addresses of clients that a route serves, or not: an RBAC filter."""

from __future__ import annotations

from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb2

from gatehouse.compiler.backends.envoy import client_ip, extensions
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.ir.http import Route

_Principal = rbac_pb2.Principal


def addresses_filter(_context: EnvoyRouteContext, route: Route) -> EnvoyPiece | None:
    """Return the filter that serves only clients with permitted addresses. Raises
    InvalidValueError."""
    addresses = route.client_addresses
    if addresses is None:
        return None
    served = _any_of(addresses.allow) if addresses.allow else _Principal(any=True)
    if addresses.deny:
        others = _Principal(not_id=_any_of(addresses.deny))
        served = _Principal(and_ids=_Principal.Set(ids=[others, served]))
    policy = rbac_pb2.Policy(permissions=[rbac_pb2.Permission(any=True)], principals=[served])
    proto = filter_pb2.RBAC(rules=rbac_pb2.RBAC(policies={"addresses": policy}))
    config = extensions.extension("envoy.filters.http.rbac", proto)
    return EnvoyPiece(filters=[config])


def _any_of(networks: tuple[str, ...]) -> rbac_pb2.Principal:
    ids = [_Principal(remote_ip=client_ip.network(network)) for network in networks]
    return _Principal(or_ids=_Principal.Set(ids=ids))
