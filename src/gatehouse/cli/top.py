"""`gatehouse top`: requests and L4 connections of routes and backends, as they are now."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import click
import msgspec

from gatehouse.apis.resources import PODS
from gatehouse.cli import output
from gatehouse.cli.errors import CLIError
from gatehouse.cli.output import show
from gatehouse.cli.parameters import kubeconfig_of, kubeconfig_option, output_option
from gatehouse.cli.status_rendering import column_widths, row_lines
from gatehouse.inspection.connection_rates import ConnectionRate
from gatehouse.inspection.data_plane_metrics import MetricsReader
from gatehouse.inspection.object_set import DATA_PLANE_SELECTOR, gateway_of_pod
from gatehouse.inspection.request_rates import SOURCES, RequestRate
from gatehouse.inspection.traffic_report import TrafficMeter, TrafficReport
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError
from kube_base.runtime.printable import printable
from kube_base.types.objects import Object


def _selected(pod: Object, gateways: Sequence[str], namespace: str) -> bool:
    gateway = gateway_of_pod(pod)
    of, _, name = gateway.partition("/")
    in_namespace = not namespace or of == namespace
    return in_namespace and (not gateways or name in gateways or gateway in gateways)


async def _reports(
    client: kube.Client, by: str, gateways: Sequence[str], namespace: str, interval: float
) -> AsyncIterator[TrafficReport]:
    """Yield the traffic of each period of ``interval`` seconds, without end."""
    reader, meter = MetricsReader(client), TrafficMeter(by)
    while True:
        pods = (
            await client.list(PODS, namespace or None, label_selector=DATA_PLANE_SELECTOR)
        ).items
        pods = [pod for pod in pods if _selected(pod, gateways, namespace)]
        if not pods:
            raise CLIError("no data plane found")
        report = meter.report(await reader.read(pods), time.monotonic())
        if report is not None:
            yield report
        await asyncio.sleep(interval)


def top_lines(report: TrafficReport, by: str, limit: int, width: int) -> Iterator[str]:
    """Yield the lines of the text. ``limit``: maximum number of rows, 0: all."""
    total = sum(row.requests_per_second for row in report.rows)
    failed = sum(row.requests_per_second * row.server_errors for row in report.rows)
    share = f"{failed / total:.1%}" if total else "0 %"
    yield (
        f"{report.data_planes} data planes, {report.seconds:.1f} s: {total:.1f} requests/s, "
        f"{share} of them 5xx"
    )
    yield from (printable(f"not known: {problem}") for problem in report.problems)
    yield ""
    durations = ("P50", "P99", "RETRIES/S", "SENT/S") if by == "route" else ()
    header = (by.upper(), "REQ/S", "4XX", "5XX", *durations)
    yield from _table(header, [_cells(row) for row in report.rows], limit, width)
    if report.connections:
        yield ""
        durations = ("P50", "P99", "RECEIVED/S", "SENT/S") if by == "route" else ()
        header = (f"L4 {by.upper()}", "CONN/S", "FAILED", *durations)
        rows = [_connection_cells(row) for row in report.connections]
        yield from _table(header, rows, limit, width)


def _table(
    header: tuple[str, ...], rows: Sequence[tuple[str, ...]], limit: int, width: int
) -> Iterator[str]:
    visible = [row[: len(header)] for row in (rows[:limit] if limit else rows)]
    widths = column_widths([header, *visible], width)
    for row in (header, *visible):
        yield from row_lines(row, widths, width)
    if hidden := len(rows) - len(visible):
        yield f"and {hidden} more: --limit 0 shows all"


def _connection_cells(row: ConnectionRate) -> tuple[str, ...]:
    return (
        printable(row.name) or "(no route)",
        f"{row.connections_per_second:.1f}",
        f"{row.failed:.1%}",
        _seconds(row.median_seconds),
        _seconds(row.p99_seconds),
        _bytes(row.received_bytes_per_second),
        _bytes(row.sent_bytes_per_second),
    )


def _cells(row: RequestRate) -> tuple[str, ...]:
    return (
        printable(row.name) or "(no route)",
        f"{row.requests_per_second:.1f}",
        f"{row.client_errors:.1%}",
        f"{row.server_errors:.1%}",
        _milliseconds(row.median_seconds),
        _milliseconds(row.p99_seconds),
        f"{row.retries_per_second:.1f}",
        _bytes(row.sent_bytes_per_second),
    )


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.3g} ms"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3g} s"


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} GiB"


@click.command("top")
@click.argument("gateways", nargs=-1, metavar="[[NAMESPACE/]GATEWAY]...")
@click.option("--namespace", "-n", default="", help="Count data planes of this namespace only.")
@click.option(
    "--by",
    type=click.Choice(tuple(SOURCES)),
    default="route",
    show_default=True,
    help="Count requests and connections by rule of a route, or by backend.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.5, max=3600),
    default=2.0,
    show_default=True,
    help="Period of a measurement in seconds.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Maximum number of rows, 0: all.",
)
@click.option("--watch", is_flag=True, help="Repeat until interrupted.")
@output_option
@kubeconfig_option
def top(
    gateways: tuple[str, ...],
    namespace: str,
    by: str,
    interval: float,
    limit: int,
    watch: bool,
    output: str,
    kubeconfig: Path | None,
) -> None:
    """Show requests and connections, errors and durations of routes, as they are now.

    \b
    gatehouse top
    gatehouse top --watch shop/web
    gatehouse top --by backend -o json

    The numbers are those of the data planes' metrics: a request counts when it ends. A second table
    has the TCP and TLS connections and UDP sessions of L4 routes, if there are any: they count when
    they end, too. Data planes
    that this machine cannot reach are read through the API server (subresource pods/proxy).
    """

    async def run() -> None:
        async with kube.Client.from_kubeconfig(kubeconfig_of(kubeconfig)) as client:
            async for report in _reports(client, by, gateways, namespace, interval):
                if output == "json":
                    show(json.dumps(msgspec.to_builtins(report)))
                else:
                    _show(report, by, limit, clear=watch)
                if not watch:
                    return

    try:
        asyncio.run(run())
    except (kube.ApiError, ConfigError, OSError) as error:
        raise CLIError(str(error)) from error
    except ValueError as error:
        raise CLIError(f"metrics of a data plane are not valid: {error}") from error


def _show(report: TrafficReport, by: str, limit: int, *, clear: bool) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    lines = "\n".join(top_lines(report, by, limit, width))
    if clear:
        output.clear()
    show(lines)


COMMANDS = (top,)
