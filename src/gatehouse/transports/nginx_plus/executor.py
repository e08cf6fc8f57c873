"""Carries a plan out, one request after another."""

from __future__ import annotations

from gatehouse.dataplane.nginx_plus import Server, Upstream
from gatehouse.transports.nginx_plus.client import Client, PlusError
from gatehouse.transports.nginx_plus.diff import Known, Plan

_FULL = "UpstreamOutOfMemory"


async def carry_out(client: Client, wanted: Upstream, known: Known, plan: Plan) -> Known:
    """Do what a plan says and give what is known then.

    A refusal does not keep the rest from being done; the first one is raised at the end. What is
    the host's own failure is raised at once: the request may have been carried out or not.
    """
    held: dict[int, Server] = dict(zip(known.ids, known.servers, strict=True))
    refusals: list[PlusError] = []
    for server in plan.add:
        try:
            made = await client.add(wanted.name, server)
            held[made.id] = made
        except PlusError as error:
            refusals.append(_refusal(error))
    for change in plan.change:
        try:
            held[change.id] = await client.change(wanted.name, change.id, change.fields)
        except PlusError as error:
            refusals.append(_refusal(error))
    for number in _removable(wanted, held, plan, refusals):
        try:
            await client.remove(wanted.name, number)
            del held[number]
        except PlusError as error:
            refusals.append(_refusal(error))
    if refusals:
        raise refusals[0]
    return Known(tuple(held.values()), tuple(held))


def _refusal(error: PlusError) -> PlusError:
    if error.of_host:
        raise error
    return error


def _removable(
    wanted: Upstream, held: dict[int, Server], plan: Plan, refusals: list[PlusError]
) -> tuple[int, ...]:
    """Give what may be removed: refused servers must not leave an upstream without any."""
    if not refusals or not wanted.servers:
        return plan.remove
    if any(server.server in wanted.by_address for server in held.values()):
        return plan.remove
    # A full zone takes nothing new before something old has gone.
    return plan.remove[:-1] if any(error.code == _FULL for error in refusals) else ()
