"""`gatehouse status load-balancers`: ExternalLoadBalancers by host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from rich.table import Table

from gatehouse.apis import resources
from gatehouse.kube import client as kube

Object = dict[str, Any]

COLUMNS = ("Load balancer", "Host", "Server", "API", "Version", "Synced", "Upstreams", "Message")

NLK = ("nlk", "nlk-config-status")
"""Namespace and name of the ConfigMap with the status of NGINX Loadbalancer for Kubernetes."""


async def read(client: kube.Client) -> list[tuple[str, Object]]:
    """Return the name and status of every load balancer. Raises ApiError."""
    found: list[tuple[str, Object]] = []
    try:
        for each in (await client.list(resources.EXTERNAL_LOAD_BALANCERS)).items:
            metadata = each["metadata"]
            name = f"{metadata['namespace']}/{metadata['name']}"
            found.append((name, each.get("status") or {}))
    except kube.NotFound:
        # The CRD may be absent; the ConfigMap of nlk works without it.
        pass
    try:
        config = await client.get(resources.CONFIG_MAPS, NLK[1], NLK[0])
        found.append(("nlk/nlk-config", msgspec.json.decode(config["data"]["status"])))
    except (kube.NotFound, KeyError, msgspec.DecodeError):
        pass
    return found


def table(balancers: list[tuple[str, Object]]) -> Table:
    """Return a table with a row for each host."""
    result = Table(title="Load balancers", title_justify="left")
    for column in COLUMNS:
        result.add_column(column, overflow="fold")
    for name, status in balancers:
        for row in _rows(name, status):
            result.add_row(*row)
    return result


def _rows(name: str, status: Object) -> Iterator[tuple[str, ...]]:
    version, upstreams = status.get("version", ""), str(len(status.get("upstreams") or ()))
    messages = [
        each.get("message", "")
        for each in status.get("conditions") or ()
        if each.get("type") == "Accepted" and each.get("status") != "True"
    ]
    if not status.get("hosts"):
        message = messages[0] if messages else "no status yet"
        yield (name, "", "", "", version, "[red]False", upstreams, message)
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
