"""`gatehouse controller`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from gatehouse.apis.data_plane_workload import NetworkOptions
from gatehouse.cli import run
from gatehouse.controller import main as controller
from gatehouse.controller import options as controller_options
from gatehouse.controller import plus_usage
from gatehouse.controller.leader_election import LeadershipLostError, Lease, namespaced_name
from gatehouse.controller.leader_label import LABEL
from gatehouse.controller.provisioner.copied_secrets import SECRET_USES, Source
from gatehouse.kube.config import ConfigError

PATH = click.Path(path_type=Path)


def parse_with(read: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
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


@click.command("controller")
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
    "--allow-gateway-workload-overrides",
    "workload_overrides",
    is_flag=True,
    help="Let parameters of Gateways set every field of spec.kubernetes, such as patches, image "
    "and volumes. Their authors can then run any command where data planes run.",
)
@click.option(
    "--copy-secret",
    "copies",
    multiple=True,
    callback=parse_with(lambda values: tuple(map(Source.parse, values))),
    help="USE=namespace/name: a Secret that data planes need beside them "
    f"({', '.join(SECRET_USES)}).",
)
@click.option(
    "--limit-counter",
    default="",
    help="host:port of the counter of kube-apiservers' limits that span data planes.",
)
@click.option(
    "--lease",
    default="",
    callback=parse_with(lambda value: Lease.parse(value) if value else None),
    help="namespace/name: one of several controllers acts.",
)
@click.option(
    "--pod",
    default="",
    callback=parse_with(lambda value: namespaced_name(value) if value else None),
    help=f"namespace/name of the Pod this runs in: it has the label {LABEL} while this leads.",
)
@click.option("--health", default="", help="host:port of /livez, /readyz and /metrics.")
@click.option(
    "--network-policy",
    default="",
    callback=parse_with(network_options),
    help='JSON such as {"enable":true}: NetworkPolicies of data planes that do not say otherwise '
    "(kubernetes.networkPolicy of NginxProxy and DataPlane).",
)
@click.option(
    "--plus-usage",
    "usage",
    default="",
    callback=parse_with(plus_usage.parse),
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
        await controller.run(options, await run.either(stop, leave))

    run.run(part, expected=(ConfigError, LeadershipLostError))


COMMANDS = (controller_command,)
