"""Order of the parts of a search for the cause of a rejection. No I/O.

Routes are before other objects, and what changed first is before what changed later. So a policy is
the cause and not its new route, and of two objects that fail together the one that changed last.

The CA certificates of clients are last. A port is tested with its certificates alone, and never
with these alone (:mod:`gatehouse.controller.held_back`).

A new controller has not seen the changes (:mod:`gatehouse.controller.history_order`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from functools import partial
from itertools import chain

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.held_back import changed_parts, is_route
from gatehouse.controller.published_versions import Version

Parts = tuple[Suspect, ...]


def parts_in_order(
    changes: ChangeLog, good: ir.GatewayConfiguration, new: ir.GatewayConfiguration, then: int
) -> Parts:
    """Return the parts because of which ``new`` differs from ``good``, in their order.

    ``then``: number of changes before ``good``.
    """
    parts = changed_parts(good, new, partial(changes.changed_since, then=then))
    return tuple(sorted(parts, key=partial(_place, changes, client_authorities(new))))


def parts_after(
    changes: ChangeLog, good: Version, new: ir.GatewayConfiguration, parts: Iterable[Suspect]
) -> Parts:
    """Return the parts of ``new`` that changed since ``good`` and are after some parts, in their
    order."""
    place = partial(_place, changes, client_authorities(new))
    last = max(map(place, parts))
    changed = parts_in_order(changes, good.gateway, new, good.changes)
    return tuple(part for part in changed if place(part) > last)


def client_authorities(gateway: ir.GatewayConfiguration) -> frozenset[str]:
    """Return the names of the CA certificates that verify clients."""
    validations = (listener.client_validation for listener in gateway.listeners)
    return frozenset(entry.trust for entry in validations if entry is not None)


def read_together(gateway: ir.GatewayConfiguration, named: Iterable[Suspect]) -> Parts:
    """Return parts, and the credentials that a proxy reads together with one of them.

    These are the certificates of a port and the CA certificates of its clients. Ports that have a
    certificate in common are together, too.
    """
    parts = dict.fromkeys(named)
    names = {part.credential for part in parts if part.credential}
    ports = list(_credentials_of_ports(gateway)) if names else []
    together = set(names)
    while touched := [port for port in ports if not port.isdisjoint(together)]:
        together.update(*touched)
        ports = [port for port in ports if port not in touched]
    entries = (entry for entry in gateway.credentials if entry.name in together - names)
    return (*parts, *(Suspect(entry.origins[0], credential=entry.name) for entry in entries))


def _credentials_of_ports(gateway: ir.GatewayConfiguration) -> Iterator[set[str]]:
    """Yield the credentials of each port that verifies clients."""
    for listener in gateway.listeners:
        if listener.client_validation is not None:
            certificates = (host.certificates for host in listener.virtual_hosts)
            yield {listener.client_validation.trust, *chain.from_iterable(certificates)}


def _place(
    changes: ChangeLog, authorities: Container[str], part: Suspect
) -> tuple[bool, bool, int]:
    last = changes.last(gateway_api.key_of(part.origin))
    return not is_route(part), part.credential in authorities, last
