"""`gatehouse controller`."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import msgspec

from gatehouse.apis.data_plane_workload import NetworkOptions
from gatehouse.cli import run
from gatehouse.cli.option_values import parse_with
from gatehouse.cli.parameters import PATH
from gatehouse.cli.shared_options import shared_options
from gatehouse.controller import main as controller
from gatehouse.controller import options as controller_options
from gatehouse.controller import plus_usage
from gatehouse.controller.frozen_heap import FrozenHeap
from gatehouse.controller.leader_election import LeadershipLostError, Lease, namespaced_name
from gatehouse.controller.leader_label import LABEL
from gatehouse.controller.provisioner.copied_secrets import SECRET_USES, SecretSource
from gatehouse.kube.config import ConfigError


def network_options(text: str) -> NetworkOptions:
    """Parse the default network options of data planes. Raises ValueError."""
    raw = msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    unknown = raw.keys() - set(NetworkOptions.__struct_encode_fields__)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))}: not supported")
    return msgspec.convert(raw, NetworkOptions)


@click.command("controller")
@click.option(
    "--kubeconfig",
    type=PATH,
    default=None,
    help="Path of the kubeconfig. Default: the service account of the Pod.",
)
@click.option(
    "--agent-bind-address",
    "agent_bind",
    default="0.0.0.0:8443",
    show_default=True,
    help="Listen address of the agent channel (host:port).",
)
@click.option(
    "--agent-advertise-address",
    "agent_advertise",
    required=True,
    help="Address under which agents reach the agent channel (host:port).",
)
@click.option(
    "--tls-cert-file",
    "tls_cert",
    type=PATH,
    required=True,
    help="Path of the TLS certificate of the agent channel (PEM).",
)
@click.option(
    "--tls-private-key-file",
    "tls_key",
    type=PATH,
    required=True,
    help="Path of the TLS private key (PEM).",
)
@click.option(
    "--agent-ca-file",
    "ca",
    type=PATH,
    required=True,
    help="Path of the CA certificates (PEM) by which agents verify the agent channel.",
)
@click.option(
    "--client-ca-file",
    "client_ca",
    type=PATH,
    default=None,
    help="Path of the CA certificates (PEM) that agents' client certificates must be signed by, in "
    "addition to their tokens. Default: agents need no certificate.",
)
@click.option(
    "--machine-bind-address",
    "outside_bind",
    default="",
    help="Listen address for agents on machines outside the cluster, which authenticate by client "
    "certificate (host:port). Default: not served.",
)
@click.option(
    "--machine-ca-file",
    "outside_ca",
    type=PATH,
    default=None,
    help="Path of the CA certificates (PEM) of these machines; see `gatehouse certs machine`.",
)
@click.option(
    "--client-secret",
    default="",
    help="Name of the Secret with the client certificate of agents, in each Gateway's namespace.",
)
@click.option(
    "--listener-address-mode",
    "bind",
    type=click.Choice(["any", "load-balancer"]),
    default="any",
    show_default=True,
    help="Addresses on which data planes listen: all, or those of their Service only.",
)
@shared_options
@click.option(
    "--copy-secret",
    "copies",
    multiple=True,
    callback=parse_with(lambda values: tuple(map(SecretSource.parse, values))),
    help="USE=namespace/name of a Secret that is copied to the namespaces of data planes. "
    f"USE is one of {', '.join(SECRET_USES)}. Can be repeated.",
)
@click.option(
    "--leader-election-lease",
    "lease",
    default="",
    callback=parse_with(lambda value: Lease.parse(value) if value else None),
    help="Lease of leader election (namespace/name). Default: no leader election.",
)
@click.option(
    "--pod",
    default="",
    callback=parse_with(lambda value: namespaced_name(value) if value else None),
    help=f"Pod of the controller (namespace/name). It has the label {LABEL} while it leads.",
)
@click.option(
    "--health-bind-address",
    "health",
    default="",
    help="Listen address of /livez, /readyz and /metrics (host:port). Default: not served.",
)
@click.option(
    "--data-plane-network-policy",
    "network_policy",
    default="",
    callback=parse_with(network_options),
    help="Default of kubernetes.networkPolicy in NginxProxy and GatewayParameters, as JSON such as "
    '{"enable":true}.',
)
@click.option(
    "--plus-usage-report-config",
    "usage",
    default="",
    callback=parse_with(plus_usage.parse_plus_usage),
    help="Usage reports of NGINX Plus, as JSON with endpoint, resolver, proxy, skipVerify and "
    "enforceInitialReport. Applies where a Secret is copied as license.",
)
@click.option(
    "--nginx-image",
    "image",
    default=controller_options.IMAGES["nginx"],
    show_default=True,
    help="Image of NGINX data planes.",
)
@click.option(
    "--envoy-image",
    default=controller_options.IMAGES["envoy"],
    show_default=True,
    help="Image of Envoy data planes.",
)
def controller_command(image: str, envoy_image: str, **arguments: Any) -> None:
    """Watch objects, configure data planes and write statuses."""
    if bool(arguments["outside_bind"]) is (arguments["outside_ca"] is None):
        raise click.UsageError("--machine-bind-address and --machine-ca-file must be set together")
    # Parameter names equal the fields of the controller's options.
    options = controller_options.ControllerOptions(
        **arguments, images={"nginx": image, "envoy": envoy_image}
    )

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await controller.run_controller(options, await run.any_event(stop, leave), FrozenHeap())

    run.run_until_signal(part, expected=(ConfigError, LeadershipLostError))


COMMANDS = (controller_command,)
