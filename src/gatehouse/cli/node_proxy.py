"""`gatehouse node-proxy`: runs on each node of a cluster with a hosted kube-apiserver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
import yaml

from gatehouse.cli import run as running
from gatehouse.cli.durations import Duration
from gatehouse.cli.errors import CLIError
from gatehouse.cli.output import show
from gatehouse.nodeproxy import coredns, main
from gatehouse.nodeproxy.commands import CommandError
from gatehouse.nodeproxy.manifests import Installation, manifests
from gatehouse.nodeproxy.options import (
    LinkKind,
    NodeProxyOptions,
    NodeProxyOptionsError,
    ProxyChoice,
    Tracking,
    Transport,
    check_options,
    parse_addresses,
    parse_gateway,
)

_OPTIONS = (
    click.option(
        "--address",
        "addresses",
        multiple=True,
        required=True,
        help="Address that the kube-apiserver advertises. Repeat it for IPv4 and IPv6.",
    ),
    click.option(
        "--gateway",
        required=True,
        help="Address at which the hosting cluster accepts connections (host:port).",
    ),
    click.option(
        "--port", default=443, show_default=True, help="Port on the advertised addresses."
    ),
    click.option(
        "--interface",
        default="gatehouse",
        show_default=True,
        help="Name of the network interface that holds the advertised addresses.",
    ),
    click.option(
        "--interface-type",
        "link",
        type=click.Choice(get_args(LinkKind)),
        default="dummy",
        show_default=True,
        help="Type of the network interface.",
    ),
    click.option(
        "--conntrack",
        "tracking",
        type=click.Choice(get_args(Tracking)),
        default="auto",
        show_default=True,
        help="Tool that excludes the addresses from connection tracking. keep: no exclusion.",
    ),
    click.option(
        "--transport",
        type=click.Choice(get_args(Transport)),
        default="proxy-protocol",
        show_default=True,
        help="Protocol to the gateway. connect: HTTP CONNECT, which needs Envoy.",
    ),
    click.option(
        "--destination",
        default="",
        help="Value of the header X-Gardener-Destination, for gateways of Gardener. Default: none.",
    ),
    click.option(
        "--proxy",
        type=click.Choice(get_args(ProxyChoice)),
        default="auto",
        show_default=True,
        help="Proxy to run. auto: the first one found on PATH.",
    ),
    click.option(
        "--proxy-path",
        "binary",
        default=None,
        help="Path of the proxy's executable. Default: found on PATH.",
    ),
    click.option(
        "--max-connections",
        "connections",
        default=10_000,
        show_default=True,
        help="Maximum number of concurrent Pod connections.",
    ),
    click.option(
        "--check-interval",
        "interval",
        type=Duration(),
        default="60s",
        show_default=True,
        help="Time between checks of the node, such as 60s.",
    ),
    click.option(
        "--health-bind-address",
        "probes",
        default="127.0.0.1:16910",
        show_default=True,
        help="Listen address of /livez, /readyz and /metrics (host:port).",
    ),
    click.option(
        "--dir",
        "directory",
        type=click.Path(path_type=Path),
        default=Path("/run/gatehouse-node-proxy"),
        show_default=True,
        help="Directory for the proxy's configuration and sockets.",
    ),
    click.option("--cleanup", is_flag=True, help="Remove the node configuration at exit."),
)

_Command = TypeVar("_Command", bound=Callable[..., None])


def _options(command: _Command) -> _Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _read(addresses: tuple[str, ...], gateway: str, **others: Any) -> NodeProxyOptions:
    try:
        options = NodeProxyOptions(
            addresses=parse_addresses(addresses), gateway=parse_gateway(gateway), **others
        )
        return check_options(options)
    except NodeProxyOptionsError as error:
        raise CLIError(str(error)) from error


@click.group("node-proxy")
def node_proxy() -> None:
    """Connect Pods to a kube-apiserver that is hosted in another cluster."""


@node_proxy.command("run")
@_options
def run(**arguments: Any) -> None:
    """Configure the node and run the local proxy until a signal."""
    options = _read(**arguments)

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await main.run_node_proxy(options, await running.any_event(stop, leave))

    running.run_until_signal(part, expected=(NodeProxyOptionsError, CommandError))


@node_proxy.command("setup")
@_options
def setup(**arguments: Any) -> None:
    """Configure the node once and exit."""
    _once(main.set_up, _read(**arguments), "The node is already configured.")


@node_proxy.command("cleanup")
@_options
def cleanup(**arguments: Any) -> None:
    """Remove the configuration from the node."""
    _once(main.clean_up, _read(**arguments), "The node has no configuration to remove.")


def _once(
    work: Callable[[NodeProxyOptions], Coroutine[Any, Any, list[str]]],
    options: NodeProxyOptions,
    nothing: str,
) -> None:
    try:
        changes = asyncio.run(work(options))
    except CommandError as error:
        raise CLIError(str(error)) from error
    for line in changes or [nothing]:
        show(line)


@node_proxy.command("manifests")
@_options
@click.option("--image", required=True, help="Image with gatehouse, a proxy, ip and nft.")
@click.option(
    "--name", default="gatehouse-node-proxy", show_default=True, help="Name of the objects."
)
@click.option(
    "--namespace", default="kube-system", show_default=True, help="Namespace of the objects."
)
@click.option(
    "--pull-secret",
    "pull_secrets",
    multiple=True,
    help="Name of a Secret for pulling the image. Can be repeated.",
)
@click.option(
    "--kubernetes-service-mode",
    "master",
    type=click.Choice(["service", "names"]),
    default=None,
    help="Objects that lead to the kube-apiserver: the Service kubernetes and EndpointSlices, or "
    "a CoreDNS zone. Default: none.",
)
@click.option("--domain", default="cluster.local", show_default=True, help="Cluster domain.")
def print_manifests(
    image: str,
    name: str,
    namespace: str,
    pull_secrets: tuple[str, ...],
    master: Any,
    domain: str,
    **arguments: Any,
) -> None:
    """Print the objects that a hosted cluster needs, as YAML."""
    objects = manifests(
        _read(**arguments),
        Installation(
            image=image,
            name=name,
            namespace=namespace,
            pull_secrets=pull_secrets,
            kubernetes_service=master or "",
            domain=domain,
        ),
    )
    show(yaml.safe_dump_all(objects, sort_keys=False), nl=False)


@node_proxy.command("zone")
@click.option(
    "--address",
    "addresses",
    multiple=True,
    required=True,
    help="Address that the kube-apiserver advertises. Repeat it for IPv4 and IPv6.",
)
@click.option("--domain", default="cluster.local", show_default=True, help="Cluster domain.")
def print_zone(addresses: tuple[str, ...], domain: str) -> None:
    """Print the CoreDNS zone file for kubernetes.default.svc."""
    try:
        show(coredns.service_zone(parse_addresses(addresses), domain), nl=False)
    except NodeProxyOptionsError as error:
        raise CLIError(str(error)) from error


COMMANDS = (node_proxy,)
