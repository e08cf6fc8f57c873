"""`gatehouse dns zone`: DNS zone file with the names of HostedAPIServers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

import click

from gatehouse.apis import resources
from gatehouse.cli.errors import CLIError
from gatehouse.cli.output import show
from gatehouse.cli.parameters import PATH, kubeconfig_of
from gatehouse.compiler.frontends import hosted_apiserver
from gatehouse.compiler.frontends.hosted_apiserver.dns import DnsRecord, dns_records_for
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError
from gatehouse.kube.informer import Informer
from gatehouse.kube.store import Changes
from kube_base.types.objects import ReadOnlyObject
from kube_base.types.resource import Resource


@click.group()
def dns() -> None:
    """Show the DNS names of hosted kube-apiservers."""


@dns.command()
@click.option(
    "--zone", "origin", required=True, help="Domain of the zone. Other names are left out."
)
@click.option(
    "--kubeconfig",
    type=PATH,
    default=None,
    help="Path of the kubeconfig. Default: $KUBECONFIG, or that of `gatehouse up`.",
)
@click.option(
    "--output",
    type=PATH,
    default=None,
    help="Path of the zone file, replaced atomically. Default: standard output.",
)
@click.option(
    "--watch", "-w", is_flag=True, help="Write the file after every change. Requires --output."
)
@click.option(
    "--nameserver",
    default="",
    help="Name server of the SOA and NS records. Default: no such records.",
)
@click.option(
    "--contact", default="", help="Mailbox in the SOA record. Default: hostmaster of the zone."
)
def zone(
    origin: str,
    kubeconfig: Path | None,
    output: Path | None,
    watch: bool,
    nameserver: str,
    contact: str,
) -> None:
    """Write the names of all HostedAPIServers as a zone file (RFC 1035)."""
    if watch and output is None:
        raise click.UsageError("--watch requires --output")
    file = _Zone(origin, output, nameserver, contact)
    try:
        with asyncio.Runner() as runner:
            runner.run(_write_zone(kubeconfig_of(kubeconfig), file, watch=watch))
    except (kube.ApiError, ConfigError, OSError) as error:
        raise CLIError(str(error)) from error


class _Zone:
    """Zone file, written when its records change."""

    def __init__(self, origin: str, output: Path | None, nameserver: str, contact: str) -> None:
        self._origin = origin
        self._output = output
        self._nameserver = nameserver.rstrip(".")
        self._contact = contact.rstrip(".") or f"hostmaster.{origin.strip('.')}"
        self._last: list[DnsRecord] | None = None

    def write(self, servers: Iterable[ReadOnlyObject]) -> None:
        """Write the records of `servers` if they differ from those written last."""
        records = sorted(record for server in servers for record in records_of(server))
        if records == self._last:
            return
        self._last = records
        text = hosted_apiserver.zone_file(self._origin, records, self._top())
        if self._output is None:
            show(text, nl=False)
            return
        fresh = self._output.with_name(f".{self._output.name}.new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self._output)

    def _top(self) -> str:
        if not self._nameserver:
            return ""
        # Unix seconds increase with every change and fit 32 bits until 2106.
        times = f"{int(time.time())} 3600 600 1209600 60"
        soa = f"@ 3600 IN SOA {self._nameserver}. {self._contact}. {times}"
        return f"{soa}\n@ 3600 IN NS {self._nameserver}."


def records_of(server: ReadOnlyObject) -> list[DnsRecord]:
    """Return the records in the status of a HostedAPIServer. Empty while it is not accepted."""
    status, spec = server.get("status") or {}, server.get("spec") or {}
    targets = [address.get("value", "") for address in status.get("addresses") or ()]
    ttl = int((spec.get("dns") or {}).get("ttlSeconds") or 60)
    return dns_records_for(status.get("hosts") or (), filter(None, targets), ttl)


async def _write_zone(kubeconfig: Path, file: _Zone, *, watch: bool) -> None:
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        if not watch:
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
