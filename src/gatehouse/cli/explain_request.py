"""`gatehouse explain request`: the expected answer to a request, and everything it depends on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click
import msgspec

from gatehouse.cli import connection_sender, explain_rendering, logged_request, request_sender
from gatehouse.cli.errors import CLIError
from gatehouse.cli.logged_request import LoggedRequest
from gatehouse.cli.object_source import read_cluster, read_manifests
from gatehouse.cli.output import show
from gatehouse.cli.parameters import PATH, kubeconfig_of, kubeconfig_option, output_option
from gatehouse.cli.sent_response import SentResponse
from gatehouse.compiler.evaluation.explanation import Explanation
from gatehouse.compiler.evaluation.http_request import HttpRequest
from gatehouse.inspection.data_plane_metrics import MetricsReader
from gatehouse.inspection.data_plane_versions import explain_data_planes
from gatehouse.inspection.failed_requests import explain_failures
from gatehouse.inspection.object_set import ObjectSet, pods_of_gateway
from gatehouse.inspection.request_explanation import (
    ExplainedTarget,
    explain_target,
    parse_request_target,
)
from gatehouse.kube import client as kube
from kube_base.types.objects import Object

EXIT_NOT_FORWARDED, EXIT_DIFFERENT = 3, 4
"""Exit statuses: no backend answers; the answer to `--send` is another one."""


@click.command("request")
@click.argument("words", nargs=-1, required=True, metavar="[METHOD] URL")
@click.option("--header", "-H", "headers", multiple=True, help="Header, as Name: value.")
@click.option("--gateway", default="", help="Gateway, as namespace/name. Default: by the URL.")
@click.option("--sni", default=None, help="Server name of the handshake. Default: the host.")
@click.option("--client", default="", help="IP address of the client, for permitted ranges.")
@click.option("--send", is_flag=True, help="Send the request or open the connection, and compare.")
@click.option("--data", default="", help="Text that --send sends by tcp, tls or udp.")
@click.option(
    "--filename",
    "-f",
    "filenames",
    type=PATH,
    multiple=True,
    help="File or directory of manifests, instead of a cluster. Can be repeated.",
)
@click.option(
    "--namespace",
    "-n",
    default="default",
    show_default=True,
    help="Namespace of manifests that name none.",
)
@output_option
@kubeconfig_option
@click.pass_context
def request(
    context: click.Context,
    words: tuple[str, ...],
    headers: tuple[str, ...],
    gateway: str,
    sni: str | None,
    client: str,
    send: bool,
    data: str,
    filenames: tuple[Path, ...],
    namespace: str,
    output: str,
    kubeconfig: Path | None,
) -> None:
    """Explain the answer to a request that a Gateway serves.

    URLs start with http, https, tls, tcp or udp. The first line is the expected answer and its
    cause. The exit status is 0 if a backend answers, 3 if the Gateway answers itself or not at all,
    4 if the answer to --send differs, and 1 on errors.
    """
    target = parse_request_target(words, headers, sni, client)
    if send and filenames:
        raise CLIError("--send needs a cluster: it must not be set with --filename")
    if data and (not send or isinstance(target.subject, HttpRequest)):
        raise CLIError("--data needs --send and a URL that starts with tcp, tls or udp")
    path = kubeconfig_of(kubeconfig)
    resolved = read_manifests(filenames, namespace) if filenames else read_cluster(path)
    explanation = explain_target(resolved, target, gateway, offline=bool(filenames))
    if not filenames:
        explanation = asyncio.run(_with_data_planes(path, resolved, explanation))
    sent = _sent(path, resolved, target, data.encode(), explanation) if send else None
    if output == "json":
        show(explain_rendering.as_json(explanation, sent))
    else:
        for line in explain_rendering.explanation_lines(explanation, sent):
            show(line)
    context.exit(_exit_status(explanation, sent))


def _sent(
    kubeconfig: Path,
    objects: ObjectSet,
    target: ExplainedTarget,
    data: bytes,
    explanation: Explanation,
) -> SentResponse:
    """Send a request or open a connection. Add its entry in the access log if that tells more."""
    subject, expected = target.subject, explanation.answer
    address = explanation.addresses[0] if explanation.addresses else target.host
    pods = pods_of_gateway(objects.pods, explanation.gateway)
    if isinstance(subject, HttpRequest):
        subject, request_id = logged_request.identified(subject)
        sent = request_sender.exchange_request(subject, address, expected)
        if not request_sender.is_error(sent, expected):
            return sent
        find = partial(logged_request.find_entry, request_id=request_id)
        return sent.explained(asyncio.run(_logged(kubeconfig, pods, find)), expected)
    opened = connection_sender.open_and_compare(subject, address, data, expected)
    sent, connection = asyncio.run(opened)
    if connection is None:
        return sent
    find = partial(logged_request.find_connection, gateway=explanation.gateway, sent=connection)
    logged = asyncio.run(_logged(kubeconfig, pods, find))
    return connection_sender.with_entry(sent, logged, expected)


async def _logged(
    kubeconfig: Path, pods: list[Object], find: Callable[[Sequence[str]], LoggedRequest | None]
) -> LoggedRequest:
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        return await logged_request.read_logged(client, pods, find)


async def _with_data_planes(
    kubeconfig: Path, objects: ObjectSet, explanation: Explanation
) -> Explanation:
    """Return the explanation with the data planes, and with what their metrics tell."""
    pods = pods_of_gateway(objects.pods, explanation.gateway)
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        pages = await MetricsReader(client).read(pods)
    planes = explain_data_planes(pods, pages)
    failures = explain_failures(explanation.backends, pages)
    return msgspec.structs.replace(explanation, data_planes=planes, failures=failures)


def _exit_status(explanation: Explanation, sent: SentResponse | None) -> int:
    if sent is not None and not sent.agrees:
        return EXIT_DIFFERENT
    return 0 if explanation.answer.verdict == "forwarded" else EXIT_NOT_FORWARDED
