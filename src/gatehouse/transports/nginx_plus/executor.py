"""Executes a plan, one request after another."""

from __future__ import annotations

from gatehouse.dataplane.nginx_plus import PlusServer, Upstream
from gatehouse.transports.nginx_plus.client import PlusClient, PlusHostError
from gatehouse.transports.nginx_plus.diff import ObservedServers, RequestPlan

_FULL = "UpstreamOutOfMemory"


async def execute(
    client: PlusClient, desired: Upstream, known: ObservedServers, plan: RequestPlan
) -> ObservedServers:
    """Execute a plan and return the resulting state.

    An upstream failure does not stop the remaining requests; the first one is raised at the end. A
    host failure is raised at once, because the request may have been executed or not.
    """
    servers: dict[int, PlusServer] = dict(zip(known.ids, known.servers, strict=True))
    failures: list[PlusHostError] = []
    for server in plan.add:
        try:
            entry = await client.add(desired.name, server)
            servers[entry.id] = entry
        except PlusHostError as error:
            failures.append(_upstream_failure(error))
    for change in plan.change:
        try:
            servers[change.id] = await client.change(desired.name, change.id, change.fields)
        except PlusHostError as error:
            failures.append(_upstream_failure(error))
    for number in _removable(desired, servers, plan, failures):
        try:
            await client.remove(desired.name, number)
            del servers[number]
        except PlusHostError as error:
            failures.append(_upstream_failure(error))
    if failures:
        raise failures[0]
    return ObservedServers(tuple(servers.values()), tuple(servers))


def _upstream_failure(error: PlusHostError) -> PlusHostError:
    if error.of_host:
        raise error
    return error


def _removable(
    desired: Upstream,
    servers: dict[int, PlusServer],
    plan: RequestPlan,
    failures: list[PlusHostError],
) -> tuple[int, ...]:
    """Return the IDs to remove. After failures, an upstream must keep at least one server."""
    if not failures or not desired.servers:
        return plan.remove
    if any(server.server in desired.by_address for server in servers.values()):
        return plan.remove
    # A full zone accepts a new server only after an old one is removed.
    return plan.remove[:-1] if any(error.code == _FULL for error in failures) else ()
