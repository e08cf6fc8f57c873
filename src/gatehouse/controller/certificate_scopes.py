"""Search for certificates that a proxy rejects, while no version is known to be good. No I/O.

They are the certificates of hostnames and the CA certificates that verify clients. A hostname needs
its certificate, and a port its CA certificates. So the search among all routes would leave out
every route of a hostname with a rejected one, and then the proxy would still reject the hostname.
That search starts with the hostnames without routes instead. If they are rejected, the cause is a
certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.assumed_good import SearchScope, bare_gateway, empty_gateway


def with_certificate_scopes(
    rejected: ir.GatewayConfiguration, scopes: Iterable[SearchScope]
) -> Iterator[SearchScope]:
    """Yield scopes, and after that of all routes, the scope of all certificates."""
    validations = (entry.client_validation for entry in rejected.listeners)
    names = {entry.trust for entry in validations if entry is not None}
    names |= {entry.name for entry in rejected.certificates}
    credentials = [entry for entry in rejected.credentials if entry.name in names]
    for scope in scopes:
        if scope.view is not bare_gateway or not credentials:
            yield scope
            continue
        yield msgspec.structs.replace(scope, good=gateway_without_routes(rejected))
        parts = tuple(Suspect(entry.origins[0], credential=entry.name) for entry in credentials)
        yield SearchScope(empty_gateway(rejected), parts, gateway_without_routes, scope.trial)


def gateway_without_routes(gateway: ir.GatewayConfiguration) -> ir.GatewayConfiguration:
    """Return a configuration of the same hostnames with nothing but their certificates."""
    bare = bare_gateway(gateway)
    listeners = tuple(
        msgspec.structs.replace(
            listener,
            virtual_hosts=tuple(
                msgspec.structs.replace(host, routes=()) for host in listener.virtual_hosts
            ),
        )
        for listener in bare.listeners
    )
    l4_listeners = tuple(
        msgspec.structs.replace(
            listener,
            hosts=tuple(msgspec.structs.replace(host, backends=()) for host in listener.hosts),
        )
        for listener in bare.l4_listeners
    )
    return msgspec.structs.replace(
        bare, listeners=listeners, l4_listeners=l4_listeners, clusters=()
    )
