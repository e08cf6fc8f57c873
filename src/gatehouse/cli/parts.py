"""The control plane's processes behind `gatehouse up`, each also to be run by itself."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.apis.workload import NetworkOptions
from gatehouse.cli import running
from gatehouse.cli.errors import Trouble
from gatehouse.controller import options as controller_options
from gatehouse.controller import run as controller
from gatehouse.controller import usage
from gatehouse.controller.leadership import LeadershipLostError, Lease
from gatehouse.kube.config import ConfigError
from gatehouse.provisioner.copies import USES, Source
from gatehouse.standalone.node import images as table
from gatehouse.standalone.node import node as local_node

PATH = click.Path(path_type=Path)


def pod_network(_: click.Context, __: click.Parameter, value: str) -> str:
    """Read a network for users' Pods. Raises BadParameter."""
    try:
        network = ipaddress.IPv4Network(value)
    except ValueError as error:
        raise click.BadParameter(f"{value}: {error}") from error
    if network.is_loopback or network.num_addresses < 4:
        raise click.BadParameter(f"{value} is no network of 4 or more addresses beyond loopback")
    return value


def parsed(read: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Give a callback that reads an option's value, and tells what ValueError says."""

    def callback(_: click.Context, __: click.Parameter, value: Any) -> Any:
        try:
            return read(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback


def network_options(text: str) -> NetworkOptions:
    """Read what holds for all data planes. Raises ValueError."""
    raw = msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    unknown = raw.keys() - set(NetworkOptions.__struct_encode_fields__)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} is not known")
    return msgspec.convert(raw, NetworkOptions)


def find_nginx(named: str | None) -> Path:
    """Give the NGINX to run, after asking it what it is."""
    try:
        return nginx_binary.probe(nginx_binary.find(named or None)).path
    except nginx_binary.NginxMissingError as error:
        raise Trouble(str(error)) from error


@click.command()
@click.option("--kubeconfig", type=PATH, default=None, help="Without it: the Pod's environment.")
@click.option("--agent-bind", default="0.0.0.0:8443", show_default=True)
@click.option("--agent-advertise", required=True, help="host:port under which agents find us.")
@click.option("--tls-cert", type=PATH, required=True)
@click.option("--tls-key", type=PATH, required=True)
@click.option("--ca", type=PATH, required=True, help="PEM bundle that agents are to trust.")
@click.option(
    "--client-ca",
    type=PATH,
    default=None,
    help="PEM bundle: agents must show a certificate of it, beside their token.",
)
@click.option(
    "--outside-bind",
    default="",
    help="host:port for load balancers outside the cluster, which show certificates.",
)
@click.option(
    "--outside-ca",
    type=PATH,
    default=None,
    help="PEM bundle of the authorities for these; see `gatehouse certs agent`.",
)
@click.option(
    "--client-secret",
    default="",
    help="Secret in each Gateway's namespace with the certificate that its agents show.",
)
@click.option("--bind", type=click.Choice(["any", "load-balancer"]), default="any")
@click.option("--snippets", is_flag=True, help="Allow SnippetsFilters: raw NGINX configuration.")
@click.option(
    "--copy-secret",
    "copies",
    multiple=True,
    callback=parsed(lambda values: tuple(map(Source.parse, values))),
    help=f"USE=namespace/name: a Secret that data planes need beside them ({', '.join(USES)}).",
)
@click.option(
    "--limit-counter",
    default="",
    help="host:port of the counter of kube-apiservers' limits that span data planes.",
)
@click.option(
    "--lease",
    default="",
    callback=parsed(lambda value: Lease.parse(value) if value else None),
    help="namespace/name: one of several controllers acts.",
)
@click.option("--health", default="", help="host:port of /livez, /readyz and /metrics.")
@click.option(
    "--network-policy",
    default="",
    callback=parsed(network_options),
    help='JSON such as {"enable":true}: NetworkPolicies of data planes that do not say otherwise '
    "(kubernetes.networkPolicy of NginxProxy and DataPlane).",
)
@click.option(
    "--plus-usage",
    "usage",
    default="",
    callback=parsed(usage.parse),
    help="JSON with endpoint, resolver, proxy, skipVerify, enforceInitialReport: how NGINX Plus "
    "reports its use, where a Secret is copied as license.",
)
@click.option("--image", default=controller_options.IMAGES["nginx"], show_default=True)
@click.option("--envoy-image", default=controller_options.IMAGES["envoy"], show_default=True)
def controller_command(image: str, envoy_image: str, **given: Any) -> None:
    """Watch objects, configure data planes, write statuses."""
    if bool(given["outside_bind"]) is (given["outside_ca"] is None):
        raise click.UsageError("--outside-bind and --outside-ca go together")
    # Options of the command are named as those of the controller.
    options = controller_options.Options(**given, images={"nginx": image, "envoy": envoy_image})

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await controller.run(options, await running.either(stop, leave))

    running.run(part, expected=(ConfigError, LeadershipLostError))


@click.command()
@click.option("--kubeconfig", type=PATH, required=True)
@click.option("--dir", "directory", type=PATH, required=True, help="Files of the data planes.")
@click.option("--address-pool", default="127.100.0.0/16", show_default=True)
@click.option("--nginx", default=None, help="NGINX binary; see `gatehouse up --help`.")
@click.option("--images", type=PATH, default=None, help="YAML file of images to run as commands.")
@click.option("--pod-network", default="10.244.0.0/16", show_default=True, callback=pod_network)
def node(
    kubeconfig: Path,
    directory: Path,
    address_pool: str,
    nginx: str | None,
    images: Path | None,
    pod_network: str,
) -> None:
    """Run data planes as processes of this machine (kubelet and load balancer)."""
    binary = find_nginx(nginx)
    try:
        known = table.load(images) if images else {}
    except table.ImagesError as error:
        raise Trouble(str(error)) from error
    options = local_node.Options(
        kubeconfig=kubeconfig,
        directory=directory,
        pool=address_pool,
        nginx=str(binary),
        images=known,
        pod_network=pod_network,
    )

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await local_node.run(options, stop, leave)

    running.run(part, expected=(ConfigError,))


controller_command.name = "controller"
COMMANDS = (controller_command, node)
