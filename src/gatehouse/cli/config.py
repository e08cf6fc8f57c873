"""`gatehouse config`: configuration that a Gateway's data plane serves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import click
import msgspec

from gatehouse.apis import resources
from gatehouse.cli.data_plane_files import DataPlaneConfiguration, configuration_diff
from gatehouse.cli.data_plane_reader import DataPlaneReader, UnreadableError
from gatehouse.cli.errors import CLIError
from gatehouse.cli.output import show
from gatehouse.cli.parameters import PATH, kubeconfig_of
from gatehouse.inspection.condition_summary import condition_status
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError
from gatehouse.standalone.state_directory import State, default_directory
from kube_base.runtime.printable import printable
from kube_base.types.objects import Object


class DataPlane(msgspec.Struct, frozen=True):
    """Configurations of one data plane."""

    label: str
    """``namespace/name`` of its Pod."""
    served: DataPlaneConfiguration
    previous: DataPlaneConfiguration | None


@click.command()
@click.argument("gateway", metavar="NAMESPACE/NAME")
@click.option(
    "--diff",
    is_flag=True,
    help="Show how the data planes of the Gateway differ or, if they are equal, the change since "
    "the previous configuration.",
)
@click.option(
    "--diff-with",
    default="",
    metavar="NAMESPACE/NAME",
    help="Show how the data planes of two Gateways differ.",
)
@click.option(
    "--state-dir",
    type=PATH,
    default=None,
    help="State directory. Default: $XDG_STATE_HOME/gatehouse.",
)
@click.option(
    "--kubeconfig",
    type=PATH,
    default=None,
    help="Path of the kubeconfig. Default: $KUBECONFIG, or that of `gatehouse up`.",
)
def config(
    gateway: str, diff: bool, diff_with: str, state_dir: Path | None, kubeconfig: Path | None
) -> None:
    """Print the configuration that a Gateway's data plane serves now.

    \b
    gatehouse config shop/web
    gatehouse config shop/web --diff
    gatehouse config shop/web --diff-with shop/web-canary

    Prints the files of NGINX, or the resources of Envoy as YAML by type and name. Digests stand for
    private keys, tokens and passwords. They are comparable within one run of the command.

    Data planes in a cluster are read by a command in their Pods, for which the user needs the
    permission to get and create pods/exec.
    """
    state = State(state_dir or default_directory(os.environ))
    if kubeconfig is None and state_dir is not None:
        kubeconfig = state.kubeconfig
    names = [_name(gateway), *([_name(diff_with)] if diff_with else [])]
    try:
        planes = asyncio.run(
            _read(kubeconfig_of(kubeconfig), state, names, every=diff and not diff_with)
        )
    except (kube.ApiError, ConfigError) as error:
        raise CLIError(str(error)) from error
    first, *others = planes
    if diff_with:
        _print_diff(first, others[0])
    elif diff:
        _print_change(first, others, gateway)
    else:
        _print(first, gateway)


def _name(gateway: str) -> tuple[str, str]:
    namespace, _, name = gateway.partition("/")
    if not namespace or not name:
        raise CLIError(f"{gateway!r} must be namespace/name")
    return namespace, name


async def _read(
    kubeconfig: Path, state: State, gateways: list[tuple[str, str]], *, every: bool
) -> list[DataPlane]:
    """Return the first data plane of each Gateway, or every one. Raises CLIError or ApiError."""
    result = []
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        reader = DataPlaneReader(client, state.node)
        for namespace, name in gateways:
            async with aclosing(_data_planes(client, reader, namespace, name)) as planes:
                async for plane in planes:
                    result.append(plane)
                    if not every:
                        break
    return result


async def _data_planes(
    client: kube.Client, reader: DataPlaneReader, namespace: str, name: str
) -> AsyncGenerator[DataPlane]:
    """Yield the readable data planes of a Gateway, at least one. Raises CLIError or ApiError.

    The others are named on standard error.
    """
    gateway = await client.get(resources.GATEWAYS, name, namespace=namespace)
    selector = f"gateway.networking.k8s.io/gateway-name={name}"
    pods = (await client.list(resources.PODS, namespace, label_selector=selector)).items
    if not pods:
        reason = _missing_data_plane_reason(gateway)
        raise CLIError(f"Gateway {namespace}/{name} has no data plane: {reason}")
    problems = []
    for pod in pods:
        try:
            stored = await reader.read(pod)
        except UnreadableError as error:
            problems.append(str(error))
            show(f"not read: {printable(str(error))}", err=True)
            continue
        yield DataPlane(f"{namespace}/{pod['metadata']['name']}", stored.served, stored.previous)
    if len(problems) == len(pods):
        raise CLIError(f"no data plane of Gateway {namespace}/{name} was read")


def _print(plane: DataPlane, gateway: str) -> None:
    if not plane.served.texts:
        raise CLIError(f"the Envoy of Gateway {gateway} has accepted no configuration yet")
    for name, text in plane.served.texts.items():
        is_resources = name.endswith(".yaml")
        if not is_resources:
            show(f"# {name}")
        show(text, nl=not is_resources)


def _print_change(first: DataPlane, others: list[DataPlane], gateway: str) -> None:
    """Print how data planes differ; if they do not, the change since the previous revision."""
    different = [other for other in others if other.served != first.served]
    for other in different:
        _print_diff(first, other)
    if different:
        return
    if first.previous is None:
        raise CLIError(
            f"Gateway {gateway}: no previous configuration is stored. An agent keeps one from the "
            "second configuration on"
        )
    _print_diff(DataPlane(f"{first.label} (previous)", first.previous, None), first)


def _print_diff(before: DataPlane, after: DataPlane) -> None:
    labels = (before.label, after.label)
    lines = list(configuration_diff(before.served, after.served, labels))
    for line in lines or ["no difference"]:
        show(line)


def _missing_data_plane_reason(gateway: Object) -> str:
    """Return why a Gateway has no data plane, from its status if it has one."""
    conditions = (gateway.get("status") or {}).get("conditions")
    for kind in ("Accepted", "Programmed"):
        status, message = condition_status(conditions, kind)
        if status == "False":
            return f"{kind} is False: {message}"
    name = gateway["spec"]["gatewayClassName"]
    if condition_status(conditions, "Accepted")[0] != "True":
        return f"not accepted by any controller; its gatewayClassName is {name}"
    return "accepted, but its Pod does not exist yet"


COMMANDS = (config,)
