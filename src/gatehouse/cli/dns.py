"""Names of HostedAPIServers for the DNS: `gatehouse dns zone`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from gatehouse.apis import resources
from gatehouse.apis.resources import Resource
from gatehouse.cli.errors import CLIError
from gatehouse.cli.status import kubeconfig_of
from gatehouse.compiler.frontends import hosted_apiserver
from gatehouse.compiler.frontends.hosted_apiserver.dns import Record, dns_records_for
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError
from gatehouse.kube.informer import Informer
from gatehouse.kube.store import Changes

PATH = click.Path(path_type=Path)

Object = Mapping[str, Any]


@click.group()
def dns() -> None:
    """Show under which names hosted kube-apiservers are to be found."""


@dns.command()
@click.option("--zone", "origin", required=True, help="Names below it are written, others not.")
@click.option("--kubeconfig", type=PATH, default=None, help="Default: $KUBECONFIG, else ours.")
@click.option("--output", type=PATH, default=None, help="A file, replaced as a whole.")
@click.option("--follow", is_flag=True, help="Write again whenever something changes; see --output")
@click.option("--nameserver", default="", help="With it SOA and NS are written, too.")
@click.option("--contact", default="", help="In the SOA; default: hostmaster of the zone.")
def zone(
    origin: str,
    kubeconfig: Path | None,
    output: Path | None,
    follow: bool,
    nameserver: str,
    contact: str,
) -> None:
    """Write the names of all HostedAPIServers as a zone (RFC 1035)."""
    if follow and output is None:
        raise click.UsageError("--follow needs --output")
    file = _Zone(origin, output, nameserver, contact)
    try:
        with asyncio.Runner() as runner:
            runner.run(_written(kubeconfig_of(kubeconfig), file, follow=follow))
    except (kube.ApiError, ConfigError, OSError) as error:
        raise CLIError(str(error)) from error


class _Zone:
    """The file of a zone."""

    def __init__(self, origin: str, output: Path | None, nameserver: str, contact: str) -> None:
        self._origin = origin
        self._output = output
        self._nameserver = nameserver.rstrip(".")
        self._contact = contact.rstrip(".") or f"hostmaster.{origin.strip('.')}"
        self._last: list[Record] | None = None

    def write(self, servers: Iterable[Object]) -> None:
        """Write what the statuses of servers say, if it is not what was written last."""
        found = sorted(record for server in servers for record in of(server))
        if found == self._last:
            return
        self._last = found
        text = hosted_apiserver.zone(self._origin, found, self._top())
        if self._output is None:
            click.echo(text, nl=False)
            return
        fresh = self._output.with_name(f".{self._output.name}.new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self._output)

    def _top(self) -> str:
        if not self._nameserver:
            return ""
        # Seconds since 1970 grow with every change, and fit until 2106.
        times = f"{int(time.time())} 3600 600 1209600 60"
        soa = f"@ 3600 IN SOA {self._nameserver}. {self._contact}. {times}"
        return f"{soa}\n@ 3600 IN NS {self._nameserver}."


def of(server: Object) -> list[Record]:
    """Give the records of a HostedAPIServer, as its status says; none while it is not accepted."""
    status, spec = server.get("status") or {}, server.get("spec") or {}
    targets = [each.get("value", "") for each in status.get("addresses") or ()]
    ttl = int((spec.get("dns") or {}).get("ttlSeconds") or 60)
    return dns_records_for(status.get("hosts") or (), filter(None, targets), ttl)


async def _written(kubeconfig: Path, file: _Zone, *, follow: bool) -> None:
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        if not follow:
            file.write((await client.list(resources.HOSTED_API_SERVERS)).items)
            return

        def changed(_: Resource, __: Changes) -> None:
            file.write(informer.objects.values())

        informer = Informer(client, resources.HOSTED_API_SERVERS, on_changes=changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            await informer.synced.wait()
            file.write(informer.objects.values())


COMMANDS: tuple[click.Command, ...] = (dns,)
