"""`gatehouse explain request`: the expected answer to a request, and everything it depends on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import msgspec

from gatehouse.apis.objects import Object
from gatehouse.cli import explain_rendering, logged_request, request_sender
from gatehouse.cli.errors import CLIError
from gatehouse.cli.object_source import read_cluster, read_manifests
from gatehouse.cli.output import show
from gatehouse.cli.parameters import PATH, kubeconfig_of, kubeconfig_option, output_option
from gatehouse.compiler.evaluation.explanation import ExplainedDataPlane, Explanation
from gatehouse.compiler.evaluation.http_request import HttpRequest
from gatehouse.inspection.data_plane_metrics import MetricsReader
from gatehouse.inspection.data_plane_versions import explain_data_planes
from gatehouse.inspection.object_set import ObjectSet, pods_of_gateway
from gatehouse.inspection.request_explanation import (
    ExplainedTarget,
    explain_target,
    parse_request_target,
)
from gatehouse.kube import client as kube

EXIT_NOT_FORWARDED, EXIT_DIFFERENT = 3, 4
"""Exit statuses: no backend answers; the answer to `--send` is another one."""


@click.command("request")
@click.argument("words", nargs=-1, required=True, metavar="[METHOD] URL")
@click.option("--header", "-H", "headers", multiple=True, help="Header, as Name: value.")
@click.option("--gateway", default="", help="Gateway, as namespace/name. Default: by the URL.")
@click.option("--sni", default=None, help="Server name of the handshake. Default: the host.")
@click.option("--client", default="", help="IP address of the client, for permitted ranges.")
@click.option("--send", is_flag=True, help="Send the request and compare the answer.")
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
    path = kubeconfig_of(kubeconfig)
    resolved = read_manifests(filenames, namespace) if filenames else read_cluster(path)
    explanation = explain_target(resolved, target, gateway, offline=bool(filenames))
    if not filenames:
        planes = asyncio.run(_data_planes(path, resolved, explanation.gateway))
        explanation = msgspec.structs.replace(explanation, data_planes=planes)
    sent = _sent(path, resolved, target, explanation) if send else None
    if output == "json":
        show(explain_rendering.as_json(explanation, sent))
    else:
        for line in explain_rendering.explanation_lines(explanation, sent):
            show(line)
    context.exit(_exit_status(explanation, sent))


def _sent(
    kubeconfig: Path, objects: ObjectSet, target: ExplainedTarget, explanation: Explanation
) -> request_sender.SentResponse:
    """Send a request. If its answer is an error, add its entry in the access log."""
    subject, request_id = target.subject, ""
    if isinstance(subject, HttpRequest):
        subject, request_id = logged_request.identified(subject)
    sent = request_sender.exchange_request(subject, target.host, explanation)
    if not request_sender.is_error(sent, explanation.answer):
        return sent
    pods = pods_of_gateway(objects.pods, explanation.gateway)
    logged = asyncio.run(_logged(kubeconfig, pods, request_id))
    return sent.explained(logged, explanation.answer)


async def _logged(
    kubeconfig: Path, pods: list[Object], request_id: str
) -> logged_request.LoggedRequest:
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        return await logged_request.read_logged_request(client, pods, request_id)


async def _data_planes(
    kubeconfig: Path, objects: ObjectSet, gateway: str
) -> tuple[ExplainedDataPlane, ...]:
    pods = pods_of_gateway(objects.pods, gateway)
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        return explain_data_planes(pods, await MetricsReader(client).read(pods))


def _exit_status(explanation: Explanation, sent: request_sender.SentResponse | None) -> int:
    if sent is not None and not sent.agrees:
        return EXIT_DIFFERENT
    return 0 if explanation.answer.verdict == "forwarded" else EXIT_NOT_FORWARDED
