"""`gatehouse status` and `gatehouse status load-balancers`."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from gatehouse.apis.external_load_balancers import NLK_NAMESPACE
from gatehouse.cli import logs, status_load_balancers, status_rendering
from gatehouse.cli.default_command import GroupWithDefault
from gatehouse.cli.errors import CLIError
from gatehouse.cli.object_source import read_cluster
from gatehouse.cli.output import show
from gatehouse.cli.parameters import kubeconfig_of, kubeconfig_option
from gatehouse.cli.status_watch import watch_status
from gatehouse.cli.terminal import show_coloured
from gatehouse.inspection.data_plane_metrics import MetricsPage, read_pages
from gatehouse.inspection.failed_requests import failure_lines, with_failures
from gatehouse.inspection.object_set import REPORTED_RESOURCES, ObjectSet, gateway_of_pod
from gatehouse.inspection.status_report import ReportedObject, report_status
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError
from kube_base.runtime.printable import printable
from kube_base.types.objects import Object

_ResultT = TypeVar("_ResultT")

EXIT_PROBLEMS = 3
"""Exit status of `--problems` if there are any."""


class _StatusByDefault(GroupWithDefault):
    """Group with short names, whose subcommand is `objects` unless another one is named."""

    default = "objects"

    def with_command(self, args: list[str]) -> list[str]:
        """Return the arguments with the name of a command in front, if the user named none."""
        return args if {*self.commands, *_SHORT_NAMES} & {*args} else [self.default, *args]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a full or short name."""
        return super().get_command(ctx, _SHORT_NAMES.get(cmd_name, cmd_name))


_SHORT_NAMES = {"lb": "load-balancers"}


@click.group(cls=_StatusByDefault, context_settings={"help_option_names": ["-h", "--help"]})
@kubeconfig_option
@click.pass_context
def status(context: click.Context, kubeconfig: Path | None) -> None:
    """Show Gateways, routes, kube-apiservers and data planes, with all bad conditions.

    \b
    gatehouse status
    gatehouse status -n shop web
    gatehouse status --problems
    gatehouse status --tree

    These are the options of `gatehouse status objects`.
    """
    context.obj = kubeconfig


@status.command("objects")
@click.argument("names", nargs=-1, metavar="[[NAMESPACE/]NAME]...")
@click.option("--namespace", "-n", default="", help="Show objects of this namespace only.")
@click.option(
    "--all-namespaces", "-A", is_flag=True, help="Show objects of all namespaces (the default)."
)
@click.option("--problems", is_flag=True, help="Show problems only, one line each.")
@click.option(
    "--tree",
    is_flag=True,
    help="Show classes, Gateways, listeners, routes, kube-apiservers, Services, endpoints.",
)
@click.option("--watch", is_flag=True, help="Show changed lines until interrupted.")
@click.option(
    "--output",
    "-o",
    type=click.Choice(["text", "wide", "json", "yaml", "name"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@kubeconfig_option
@click.pass_context
def show_objects(
    context: click.Context,
    names: tuple[str, ...],
    namespace: str,
    all_namespaces: bool,
    problems: bool,
    tree: bool,
    watch: bool,
    output: str,
    kubeconfig: Path | None,
) -> None:
    """Show Gateways, routes, kube-apiservers and data planes.

    The name of a Gateway selects what belongs to it.

    \b
    gatehouse status objects -n shop web
    gatehouse status --problems --watch
    gatehouse status --tree

    --watch shows the status, then each changed line: - before, + after. The exit status is 3 if
    --problems shows any, and 1 on errors.
    """
    if all_namespaces and namespace:
        raise CLIError("--namespace must not be set with --all-namespaces")
    if tree and output not in ("text", "wide"):
        raise CLIError("--tree must not be set with --output")
    path = kubeconfig_of(kubeconfig or context.obj)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    view = StatusView(namespace, names, problems, tree, output, width)
    objects = read_cluster(path, REPORTED_RESOURCES)
    pods = view.measured_pods(objects)
    reported, text = view.render(objects, _run(read_pages(path, pods)) if pods else ())
    show(text)
    if watch:
        # Informers log kinds that do not exist.
        logs.configure("warning", "auto")
        _run(watch_status(path, text, view, show, whole=view.structured))
    context.exit(EXIT_PROBLEMS if problems and reported else 0)


class StatusView(msgspec.Struct, frozen=True):
    """Selection of objects and form of the output."""

    namespace: str = ""
    names: tuple[str, ...] = ()
    problems: bool = False
    tree: bool = False
    output: str = "text"
    width: int = 0
    """Columns of the terminal; 0 if the output is none."""

    @property
    def structured(self) -> bool:
        """True if the output is one document."""
        return self.output in ("json", "yaml", "name")

    def measured_pods(self, objects: ObjectSet) -> list[Object]:
        """Return the data planes whose metrics the output needs: those of selected objects."""
        if self.problems or self.output == "name":
            return []
        if not (self.tree or self.names or self.structured):
            return []
        reported = select_objects(report_status(objects), self.namespace, self.names)
        gateways = {gateway for item in reported for gateway in (item.gateway, *item.gateways)}
        return [pod for pod in objects.pods if gateway_of_pod(pod) in gateways]

    def text_of(self, objects: ObjectSet, pages: Sequence[MetricsPage] = ()) -> str:
        """Return the output. Raises CLIError as :func:`select_objects`."""
        return self.render(objects, pages)[1]

    def render(
        self, objects: ObjectSet, pages: Sequence[MetricsPage] = ()
    ) -> tuple[tuple[ReportedObject, ...], str]:
        """Return the selected objects and the output. ``pages``: metrics of the data planes."""
        every = with_failures(report_status(objects), pages)
        reported = select_objects(every, self.namespace, self.names)
        if self.problems:
            reported = tuple(item for item in reported if item.problems)
        return reported, self._text(with_ancestors(reported, every) if self.tree else reported)

    def _text(self, reported: Sequence[ReportedObject]) -> str:
        if self.structured:
            return status_rendering.structured_status(reported, self.output)
        if self.tree or self.problems:
            render = status_rendering.tree_lines if self.tree else status_rendering.problem_lines
            lines = [
                part
                for line in render(reported)
                for part in status_rendering.wrapped(line, self.width)
            ]
            return "\n".join(lines) or "no problems"
        wide, selected = self.output == "wide", bool(self.names)
        lines = [
            *status_rendering.status_lines(reported, wide=wide, width=self.width, selected=selected)
        ]
        if failures := failure_lines(reported):
            lines += ["", "Failed requests since the start of the data planes:"]
            lines += [printable(f"  {line}") for line in failures]
        return "\n".join(lines)


def select_objects(
    reported: Iterable[ReportedObject], namespace: str, names: Sequence[str]
) -> tuple[ReportedObject, ...]:
    """Return the objects of a namespace with one of the names, given as NAME or NAMESPACE/NAME.

    A Gateway selects its routes, kube-apiservers and data planes, too. GatewayClasses, which have
    no namespace, stay without names. UpstreamClusters belong to the namespaces of their Gateways.
    Raises CLIError for a name that no object has.
    """
    result = [item for item in reported if _is_in_namespace(item, namespace)]
    for name in names:
        if not any(name in (item.name, item.full_name) for item in result):
            place = f" in namespace {namespace}" if namespace else ""
            raise CLIError(f"no Gateway, route, kube-apiserver or data plane {name}{place}")
    if not names:
        return tuple(result)
    selection = {*names}
    gateways = {
        item.full_name
        for item in result
        if item.kind == "Gateway" and {item.name, item.full_name} & selection
    }
    return tuple(
        item
        for item in result
        if {item.name, item.full_name} & selection or {item.gateway, *item.gateways} & gateways
    )


def _is_in_namespace(item: ReportedObject, namespace: str) -> bool:
    """Return whether an object belongs to a namespace. Empty: any."""
    if not namespace or item.namespace:
        return item.namespace == namespace or not namespace
    gateways = {name.partition("/")[0] for name in item.gateways}
    return namespace in gateways or not gateways


def with_ancestors(
    selected: Sequence[ReportedObject], every: Sequence[ReportedObject]
) -> tuple[ReportedObject, ...]:
    """Return selected objects with their Gateways, and the classes of the Gateways."""
    keys = {(item.kind, item.full_name) for item in selected}
    keys |= {("Gateway", name) for item in selected for name in item.gateways}
    keys |= {
        ("GatewayClass", item.class_name) for item in every if (item.kind, item.full_name) in keys
    }
    return tuple(item for item in every if (item.kind, item.full_name) in keys)


@status.command("load-balancers")
@click.option(
    "--nlk-namespace",
    default=NLK_NAMESPACE,
    show_default=True,
    help="Namespace of ConfigMaps of nginx-loadbalancer-kubernetes.",
)
@click.pass_context
def load_balancers(context: click.Context, nlk_namespace: str) -> None:
    """Show load balancers outside the cluster, by host. Short name: lb."""
    _run(_load_balancers(kubeconfig_of(context.obj), nlk_namespace))


def _run(looking: Coroutine[Any, Any, _ResultT]) -> _ResultT:
    try:
        return asyncio.run(looking)
    except (kube.ApiError, ConfigError) as error:
        raise CLIError(str(error)) from error


async def _load_balancers(kubeconfig: Path, nlk_namespace: str) -> None:
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        balancers = await status_load_balancers.read_load_balancers(client, nlk_namespace)
    show_coloured(status_load_balancers.hosts_table(balancers))


COMMANDS = (status,)
