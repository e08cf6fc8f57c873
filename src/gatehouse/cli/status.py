"""`gatehouse status`, `gatehouse status load-balancers` and `gatehouse config`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gatehouse.apis import resources
from gatehouse.cli import status_load_balancers
from gatehouse.cli.errors import CLIError
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError
from gatehouse.standalone.node import pods
from gatehouse.standalone.state_directory import State, default_directory

PATH = click.Path(path_type=Path)

Object = dict[str, Any]

COLOURS = {"True": "green", "False": "red"}


class _Aliases(click.Group):
    """Group with short names of commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a full or short name."""
        return super().get_command(ctx, {"lb": "load-balancers"}.get(cmd_name, cmd_name))


@click.group(cls=_Aliases, invoke_without_command=True)
@click.option(
    "--kubeconfig",
    type=PATH,
    default=None,
    help="Path of the kubeconfig. Default: $KUBECONFIG, or that of `gatehouse up`.",
)
@click.pass_context
def status(context: click.Context, kubeconfig: Path | None) -> None:
    """Show Gateways, listeners, routes and data planes."""
    context.obj = kubeconfig_of(kubeconfig)
    if context.invoked_subcommand is None:
        _run(_status(context.obj))


@status.command("load-balancers")
@click.pass_context
def load_balancers(context: click.Context) -> None:
    """Show load balancers outside the cluster, by host. Short name: lb."""
    _run(_load_balancers(context.obj))


def _run(looking: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(looking)
    except (kube.ApiError, ConfigError) as error:
        raise CLIError(str(error)) from error


async def _load_balancers(kubeconfig: Path) -> None:
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        found = await status_load_balancers.read(client)
    Console().print(status_load_balancers.table(found))


def kubeconfig_of(named: Path | None) -> Path:
    """Return the path of the kubeconfig: `named`, $KUBECONFIG or that of `gatehouse up`."""
    if named is not None:
        return named
    if os.environ.get("KUBECONFIG"):
        return Path(os.environ["KUBECONFIG"].split(os.pathsep)[0])
    return State(default_directory(os.environ)).kubeconfig


ROUTES = (
    resources.HTTP_ROUTES,
    resources.GRPC_ROUTES,
    resources.TLS_ROUTES,
    resources.TCP_ROUTES,
    resources.UDP_ROUTES,
)


async def _status(kubeconfig: Path) -> None:
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        gateways = (await client.list(resources.GATEWAYS)).items
        routes = [
            {"kind": kind.kind, **route}
            for kind in ROUTES
            for route in (await client.list(kind)).items
        ]
        selector = "app.kubernetes.io/managed-by=gatehouse"
        planes = (await client.list(resources.PODS, label_selector=selector)).items
    console = Console()
    console.print(_gateways(gateways))
    console.print(_routes(routes))
    console.print(_pods(planes))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _gateways(gateways: list[Object]) -> Table:
    table = _table(
        "Gateways", "Gateway", "Address", "Listener", "Port", "Routes", "Programmed", "Message"
    )
    for gateway in gateways:
        found = gateway.get("status") or {}
        addresses = ", ".join(entry["value"] for entry in found.get("addresses") or ())
        listeners = {entry["name"]: entry for entry in found.get("listeners") or ()}
        whole = _condition(found.get("conditions"), "Programmed")
        for listener in gateway["spec"]["listeners"]:
            own = listeners.get(listener["name"], {})
            said = _condition(own.get("conditions"), "Programmed")
            message = next((m for s, m in (said, whole) if s != "True"), "")
            table.add_row(
                _name(gateway),
                addresses,
                listener["name"],
                f"{listener['port']}/{listener['protocol']}",
                str(own.get("attachedRoutes", "")),
                _format_value("True" if (said[0], whole[0]) == ("True", "True") else "False"),
                message,
            )
    return table


def _routes(routes: list[Object]) -> Table:
    table = _table(
        "Routes", "Kind", "Route", "Hostnames", "Gateway", "Accepted", "ResolvedRefs", "Message"
    )
    for route in routes:
        hostnames = ", ".join(route["spec"].get("hostnames") or ("*",))
        for parent in (route.get("status") or {}).get("parents") or [{}]:
            accepted = _condition(parent.get("conditions"), "Accepted")
            resolved = _condition(parent.get("conditions"), "ResolvedRefs")
            message = next((m for s, m in (accepted, resolved) if s != "True"), "")
            reference = parent.get("parentRef") or {}
            table.add_row(
                route["kind"],
                _name(route),
                hostnames,
                "/".join(filter(None, (reference.get("name"), reference.get("sectionName")))),
                _format_value(accepted[0]),
                _format_value(resolved[0]),
                message,
            )
    return table


def _pods(planes: list[Object]) -> Table:
    table = _table("Data planes", "Pod", "Address", "Phase", "Ready", "Restarts", "Message")
    for pod in planes:
        found = pod.get("status") or {}
        container: Object = next(iter(found.get("containerStatuses") or ()), {})
        waiting = container.get("state", {}).get("waiting") or {}
        table.add_row(
            _name(pod),
            found.get("podIP", ""),
            found.get("phase", ""),
            _format_value(_condition(found.get("conditions"), "Ready")[0]),
            str(container.get("restartCount", 0)),
            waiting.get("message", ""),
        )
    return table


def _condition(conditions: list[Object] | None, kind: str) -> tuple[str, str]:
    found = next((c for c in conditions or () if c["type"] == kind), None)
    return (found["status"], found.get("message", "")) if found else ("Unknown", "no status yet")


def _format_value(value: str) -> str:
    colour = COLOURS.get(value, "yellow")
    return f"[{colour}]{value}"


def _name(item: Object) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


@click.command()
@click.argument("gateway", metavar="NAMESPACE/NAME")
@click.option(
    "--state-dir",
    type=PATH,
    default=None,
    help="State directory. Default: $XDG_STATE_HOME/gatehouse.",
)
def config(gateway: str, state_dir: Path | None) -> None:
    """Print the configuration that a Gateway's data plane serves now (standalone).

    Prints the files of NGINX, or the resources of Envoy as YAML by type and name. Private keys,
    tokens and passwords are redacted.
    """
    namespace, _, name = gateway.partition("/")
    if not namespace or not name:
        raise CLIError(f"{gateway!r} must be namespace/name")
    state = State(state_dir or default_directory(os.environ))
    try:
        found, planes = asyncio.run(_data_planes(state.kubeconfig, namespace, name))
    except (kube.ApiError, ConfigError) as error:
        raise CLIError(str(error)) from error
    if not planes:
        raise CLIError(f"Gateway {gateway} has no data plane: {_missing_data_plane_reason(found)}")
    for pod in planes:
        data = pods.directory(state.node, namespace, pod) / "volumes" / "data"
        if (data / "current").is_dir():
            _print_files(data / "current")
            return
        if (data / "envoy.db").is_file():
            _print_resources(data / "envoy.db", gateway)
            return
    raise CLIError(
        f"Gateway {gateway} has the data plane {', '.join(planes)}, "
        f"which has no configuration below {state.node}"
    )


async def _data_planes(kubeconfig: Path, namespace: str, name: str) -> tuple[Object, list[str]]:
    """Return a Gateway and the names of its Pods."""
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        gateway = await client.get(resources.GATEWAYS, name, namespace=namespace)
        selector = f"gateway.networking.k8s.io/gateway-name={name}"
        found = await client.list(resources.PODS, namespace, label_selector=selector)
    return gateway, [pod["metadata"]["name"] for pod in found.items]


def _missing_data_plane_reason(gateway: Object) -> str:
    """Return why a Gateway has no data plane, from its status if it has one."""
    conditions = (gateway.get("status") or {}).get("conditions")
    for kind in ("Accepted", "Programmed"):
        status, message = _condition(conditions, kind)
        if status == "False":
            return f"{kind} is False: {message}"
    name = gateway["spec"]["gatewayClassName"]
    if _condition(conditions, "Accepted")[0] != "True":
        return f"not accepted by any controller; its gatewayClassName is {name}"
    return "accepted, but its Pod does not exist yet"


def _print_files(current: Path) -> None:
    for path in sorted(current.rglob("*.conf")):
        click.echo(f"# {path.relative_to(current)}")
        click.echo(path.read_text(encoding="utf-8"))


def _print_resources(database: Path, gateway: str) -> None:
    # Imported here because most commands do not need Envoy's messages.
    from gatehouse.cli import envoy_config

    try:
        found = envoy_config.read(database)
    except OSError as error:
        raise CLIError(str(error)) from error
    if not found:
        raise CLIError(f"the Envoy of Gateway {gateway} has accepted no configuration yet")
    click.echo(envoy_config.dump(found), nl=False)


COMMANDS = (status, config)
