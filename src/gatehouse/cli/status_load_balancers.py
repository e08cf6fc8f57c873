"""Looking at load balancers outside the cluster: `gatehouse status lb`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from rich.table import Table

from gatehouse.apis import resources
from gatehouse.kube import client as kube

Object = dict[str, Any]

COLUMNS = ("Load balancer", "Host", "Server", "API", "Version", "In step", "Upstreams", "Message")

NLK = ("nlk", "nlk-config-status")
"""Where the status of nlk's ConfigMap stands."""


async def read(client: kube.Client) -> list[tuple[str, Object]]:
    """Give every load balancer with its status; raises ApiError."""
    found: list[tuple[str, Object]] = []
    try:
        for each in (await client.list(resources.EXTERNAL_LOAD_BALANCERS)).items:
            metadata = each["metadata"]
            name = f"{metadata['namespace']}/{metadata['name']}"
            found.append((name, each.get("status") or {}))
    except kube.NotFound:
        # A cluster may be without the definition; nlk's ConfigMap works all the same.
        pass
    try:
        config = await client.get(resources.CONFIG_MAPS, NLK[1], NLK[0])
        found.append(("nlk/nlk-config", msgspec.json.decode(config["data"]["status"])))
    except (kube.NotFound, KeyError, msgspec.DecodeError):
        pass
    return found


def table(balancers: list[tuple[str, Object]]) -> Table:
    """Give a table with a row for each host."""
    shown = Table(title="Load balancers", title_justify="left")
    for column in COLUMNS:
        shown.add_column(column, overflow="fold")
    for name, status in balancers:
        for row in _rows(name, status):
            shown.add_row(*row)
    return shown


def _rows(name: str, status: Object) -> Iterator[tuple[str, ...]]:
    version, upstreams = status.get("version", ""), str(len(status.get("upstreams") or ()))
    refusals = [
        each.get("message", "")
        for each in status.get("conditions") or ()
        if each.get("type") == "Accepted" and each.get("status") != "True"
    ]
    if not status.get("hosts"):
        said = refusals[0] if refusals else "not said yet"
        yield (name, "", "", "", version, "[red]False", upstreams, said)
    for host in status.get("hosts") or ():
        failing = [f"{each['upstream']}: {each['error']}" for each in host.get("failing") or ()]
        message = host.get("error", "") or "; ".join(failing)
        behind = host.get("version") != version
        in_step = "[red]False" if message else "[yellow]Pending" if behind else "[green]True"
        yield (
            name,
            host.get("url") or host.get("name", ""),
            host.get("server", ""),
            str(host.get("apiVersion", "")),
            host.get("version", ""),
            in_step,
            upstreams,
            message,
        )
