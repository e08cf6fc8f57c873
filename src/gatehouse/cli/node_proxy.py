"""`gatehouse node-proxy`: on each node of a cluster whose kube-apiserver is hosted elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
import yaml

from gatehouse.cli import run as running
from gatehouse.cli.errors import CLIError
from gatehouse.nodeproxy import coredns, main
from gatehouse.nodeproxy.commands import CommandError
from gatehouse.nodeproxy.manifests import Installation, manifests
from gatehouse.nodeproxy.options import (
    LinkKind,
    Options,
    OptionsError,
    ProxyKind,
    Tracking,
    check,
    parse_addresses,
    parse_gateway,
)

_OPTIONS = (
    click.option(
        "--address",
        "addresses",
        multiple=True,
        required=True,
        help="What the kube-apiserver advertises; once for IPv4, once for IPv6.",
    ),
    click.option(
        "--gateway", required=True, help="host:port where the hosting cluster takes connections."
    ),
    click.option("--port", default=443, show_default=True, help="Where Pods connect to."),
    click.option("--interface", default="gatehouse", show_default=True),
    click.option("--link", type=click.Choice(get_args(LinkKind)), default="dummy"),
    click.option(
        "--conntrack",
        "tracking",
        type=click.Choice(get_args(Tracking)),
        default="auto",
        show_default=True,
        help="What keeps connection tracking away from the addresses; keep: nothing does.",
    ),
    click.option(
        "--proxy", type=click.Choice(get_args(ProxyKind)), default="auto", show_default=True
    ),
    click.option("--proxy-binary", "binary", default=None, help="Its executable."),
    click.option("--connections", default=10_000, show_default=True, help="At most, of Pods."),
    click.option("--interval", default=60.0, show_default=True, help="Seconds between looks."),
    click.option("--probes", default="127.0.0.1:16910", show_default=True, help="host:port"),
    click.option(
        "--directory",
        type=click.Path(path_type=Path),
        default=Path("/run/gatehouse-node-proxy"),
        show_default=True,
    ),
    click.option("--cleanup", is_flag=True, help="Take away at the end what was made."),
)

_Command = TypeVar("_Command", bound=Callable[..., None])


def _options(command: _Command) -> _Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _read(addresses: tuple[str, ...], gateway: str, **others: Any) -> Options:
    try:
        found = Options(
            addresses=parse_addresses(addresses), gateway=parse_gateway(gateway), **others
        )
        return check(found)
    except OptionsError as error:
        raise CLIError(str(error)) from error


@click.group("node-proxy")
def node_proxy() -> None:
    """Give Pods the way to a kube-apiserver that is hosted in another cluster."""


@node_proxy.command("run")
@_options
def run(**given: Any) -> None:
    """Keep the node in order and the local proxy running, until told to end."""
    options = _read(**given)

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await main.run(options, await running.either(stop, leave))

    running.run(part, expected=(OptionsError, CommandError))


@node_proxy.command("setup")
@_options
def setup(**given: Any) -> None:
    """Put the node in order once, and end."""
    _once(main.set_up, _read(**given), "Everything was in order.")


@node_proxy.command("cleanup")
@_options
def cleanup(**given: Any) -> None:
    """Take away what was made on the node."""
    _once(main.clean_up, _read(**given), "There was nothing to take away.")


def _once(
    work: Callable[[Options], Coroutine[Any, Any, list[str]]], options: Options, nothing: str
) -> None:
    try:
        done = asyncio.run(work(options))
    except CommandError as error:
        raise CLIError(str(error)) from error
    for line in done or [nothing]:
        click.echo(line)


@node_proxy.command("manifests")
@_options
@click.option("--image", required=True, help="Image with gatehouse, a proxy, ip, and nft.")
@click.option("--name", default="gatehouse-node-proxy", show_default=True)
@click.option("--namespace", default="kube-system", show_default=True)
@click.option("--pull-secret", "pull_secrets", multiple=True)
@click.option(
    "--master",
    type=click.Choice(["service", "names"]),
    default=None,
    help="With the Service kubernetes and its endpoints, or with CoreDNS' zone for its name.",
)
@click.option("--domain", default="cluster.local", show_default=True, help="The cluster's.")
def print_manifests(
    image: str,
    name: str,
    namespace: str,
    pull_secrets: tuple[str, ...],
    master: Any,
    domain: str,
    **given: Any,
) -> None:
    """Print the objects that a hosted cluster needs, as YAML."""
    made = manifests(
        _read(**given),
        Installation(
            image=image,
            name=name,
            namespace=namespace,
            pull_secrets=pull_secrets,
            kubernetes_service=master or "",
            domain=domain,
        ),
    )
    click.echo(yaml.safe_dump_all(made, sort_keys=False), nl=False)


@node_proxy.command("zone")
@click.option("--address", "addresses", multiple=True, required=True)
@click.option("--domain", default="cluster.local", show_default=True, help="The cluster's.")
def print_zone(addresses: tuple[str, ...], domain: str) -> None:
    """Print CoreDNS' zone file for kubernetes.default.svc."""
    try:
        click.echo(coredns.zone(parse_addresses(addresses), domain), nl=False)
    except OptionsError as error:
        raise CLIError(str(error)) from error


COMMANDS = (node_proxy,)
