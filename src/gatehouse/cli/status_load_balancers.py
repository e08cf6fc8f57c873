"""`gatehouse status load-balancers`: ExternalLoadBalancers by host."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec
from rich.text import Text

from gatehouse.apis import resources
from gatehouse.apis.external_load_balancers import NLK_NAMESPACE
from gatehouse.cli.terminal import ObjectTable, coloured
from gatehouse.inspection.load_balancer_report import ReportedLoadBalancer, report_load_balancer
from gatehouse.kube import client as kube
from kube_base.types.objects import Object

_COLUMNS = ("Load balancer", "Host", "Server", "API", "Version", "Synced", "Upstreams", "Message")

NLK_STATUS_SUFFIX = "nlk-config-status"
"""Default namespace of ConfigMaps of nginx-loadbalancer-kubernetes, and end of the status names."""


async def read_load_balancers(
    client: kube.Client, nlk_namespace: str = NLK_NAMESPACE
) -> list[tuple[str, Object]]:
    """Return the name and status of every load balancer. Raises ApiError."""
    result: list[tuple[str, Object]] = []
    try:
        for item in (await client.list(resources.EXTERNAL_LOAD_BALANCERS)).items:
            metadata = item["metadata"]
            name = f"{metadata['namespace']}/{metadata['name']}"
            result.append((name, item.get("status") or {}))
    except kube.NotFound:
        # The CRD may be absent; ConfigMaps of nlk work without it.
        pass
    for config in (await client.list(resources.CONFIG_MAPS, nlk_namespace)).items:
        name = config["metadata"]["name"]
        if f"-{name}".endswith(f"-{NLK_STATUS_SUFFIX}"):
            with contextlib.suppress(KeyError, msgspec.DecodeError):
                status = msgspec.json.decode(config["data"]["status"], type=Object)
                version = status.get("nlkVersion", "")
                title = f"{nlk_namespace}/{name.removesuffix('-status')}"
                result.append((f"{title} (nlk {version})" if version else title, status))
    return result


def hosts_table(balancers: list[tuple[str, Object]]) -> ObjectTable:
    """Return a table with a row for each host."""
    result = ObjectTable("Load balancers", *_COLUMNS)
    for name, status in balancers:
        for row in _rows(report_load_balancer(name, status)):
            result.add_values(*row)
    return result


def _rows(balancer: ReportedLoadBalancer) -> Iterator[tuple[str | Text, ...]]:
    upstreams = str(len(balancer.upstreams))
    if not balancer.hosts:
        name, version = balancer.name, balancer.version
        yield (name, "", "", "", version, coloured("False"), upstreams, balancer.message)
    for host in balancer.hosts:
        yield (
            balancer.name,
            host.name,
            host.server,
            host.api_version,
            host.version,
            coloured(host.synced),
            upstreams,
            host.message,
        )
