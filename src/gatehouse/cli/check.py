"""`gatehouse check`: manifests before they are applied."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gatehouse.cli import logs
from gatehouse.cli.check_findings import (
    AdmittedManifests,
    CheckedObjects,
    CheckFinding,
    compile_objects,
    proxy_findings,
)
from gatehouse.cli.check_proxies import ProxyTests, proxy_tests
from gatehouse.cli.check_rendering import CheckReport, report_json, report_lines
from gatehouse.cli.errors import CLIError
from gatehouse.cli.manifest_files import read_manifest_files
from gatehouse.cli.object_source import ASSUMED_TIME, read_cluster
from gatehouse.cli.output import show
from gatehouse.cli.parameters import PATH, kubeconfig_of, output_option
from gatehouse.cli.shared_options import front_end_options, front_end_settings
from gatehouse.compiler.evaluation.traffic import TrafficChange, compare_traffic
from gatehouse.compiler.frontends.gateway_api import ControllerSettings
from gatehouse.incremental.query import Key
from gatehouse.inspection.object_set import assume_missing
from kube_base.types.objects import Object

EXIT_FINDINGS = 3
"""Exit status if there are findings."""


@click.command("check")
@click.option(
    "--filename",
    "-f",
    "filenames",
    type=PATH,
    multiple=True,
    required=True,
    help="File or directory of manifests; - for standard input. Can be repeated.",
)
@click.option(
    "--namespace",
    "-n",
    default="default",
    show_default=True,
    help="Namespace of manifests that name none.",
)
@click.option(
    "--against",
    type=PATH,
    multiple=True,
    help="File or directory of the manifests that are replaced: show the changes in traffic. Can "
    "be repeated.",
)
@click.option(
    "--against-cluster",
    is_flag=True,
    help="Check as if the manifests were applied to the cluster: show the changes in traffic.",
)
@click.option(
    "--proxy-test/--no-proxy-test",
    default=None,
    help="Let NGINX or Envoy read the generated configuration. Default: if they are installed.",
)
@click.option("--nginx", "nginx_path", default=None, help="Path of NGINX. Default: as the agent.")
@click.option("--envoy", "envoy_path", default=None, help="Path of Envoy. Default: as the agent.")
@output_option
@click.option(
    "--kubeconfig",
    type=PATH,
    default=None,
    help="Path of the kubeconfig for --against-cluster. Default: $KUBECONFIG, or that of "
    "`gatehouse up`.",
)
@front_end_options
@click.pass_context
def check_manifests(
    context: click.Context,
    /,
    filenames: tuple[Path, ...],
    namespace: str,
    against: tuple[Path, ...],
    against_cluster: bool,
    proxy_test: bool | None,
    nginx_path: str | None,
    envoy_path: str | None,
    output: str,
    kubeconfig: Path | None,
    **options: Any,
) -> None:
    """Check manifests before they are applied.

    \b
    gatehouse check -f manifests/
    kustomize build . | gatehouse check -f -
    gatehouse check -f new/ --against old/
    gatehouse check -f manifests/ --against-cluster -o json

    Reports violations of schemas, conditions that would not be good, references that do not
    resolve, and what the proxy rejects. The exit status is 0 without findings, 3 with findings, and
    1 on errors. Options that allow something must be those of the controller.
    """
    if against and against_cluster:
        raise CLIError("--against must not be set with --against-cluster")
    settings = front_end_settings(**options)
    admitted = AdmittedManifests(read_manifest_files(filenames), namespace)
    cluster = kubeconfig_of(kubeconfig) if against_cluster else None
    checked, before = _compile(admitted, cluster, settings)
    findings = [*admitted.findings, *_new_findings(admitted, checked, before)]
    if against:
        before = _previous(against, namespace, settings)
    tests = _tests(proxy_test, nginx_path, envoy_path, checked, admitted)
    # The server of resources for Envoy logs connections.
    logs.configure("warning", "auto")
    findings += [admitted.place(key, item) for key, item in proxy_findings(checked, tests)]
    changes = compare_traffic(before.traffic, checked.traffic) if before is not None else None
    report = check_report(admitted, findings, changes, tests)
    lines = [report_json(report)] if output == "json" else report_lines(report)
    for line in lines:
        show(line)
    context.exit(EXIT_FINDINGS if report.findings else 0)


def check_report(
    admitted: AdmittedManifests,
    findings: list[CheckFinding],
    changes: tuple[TrafficChange, ...] | None,
    tests: ProxyTests,
) -> CheckReport:
    """Return the report of a check. Findings that are no problems become notes."""
    notes = [finding.text for finding in findings if finding.is_note]
    return CheckReport(
        len(admitted.places),
        tuple(dict.fromkeys(finding for finding in findings if not finding.is_note)),
        changes,
        tuple(test.name for test in tests.values()),
        (*admitted.notes, *dict.fromkeys(notes)),
    )


def _compile(
    admitted: AdmittedManifests, cluster: Path | None, settings: ControllerSettings
) -> tuple[CheckedObjects, CheckedObjects | None]:
    """Return the result with the manifests; if there is a cluster, that without them, too."""
    before, objects = None, admitted.objects
    if cluster is not None:
        present = read_cluster(cluster)
        admitted.notes += present.notes
        before = compile_objects(present.objects, settings)
        objects = overlay(present.objects, objects)
    assumed, notes = assume_missing(objects)
    admitted.notes += notes
    return compile_objects([*objects, *assumed], settings), before


def _previous(
    paths: tuple[Path, ...], namespace: str, settings: ControllerSettings
) -> CheckedObjects:
    previous = AdmittedManifests(read_manifest_files(paths), namespace)
    assumed, _ = assume_missing(previous.objects)
    return compile_objects([*previous.objects, *assumed], settings)


def overlay(present: list[Object], applied: list[Object]) -> list[Object]:
    """Return the objects of a cluster after others were applied. New objects are the youngest."""
    result = {_key(item): item for item in present}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for item in applied:
        key, metadata = _key(item), item["metadata"]
        old = result.get(key)
        created = old["metadata"].get("creationTimestamp", now) if old is not None else now
        if metadata.get("creationTimestamp") == ASSUMED_TIME:
            metadata["creationTimestamp"] = created
        result[key] = item
    return list(result.values())


def _key(item: Object) -> Key:
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", ""), metadata["name"]


def _new_findings(
    admitted: AdmittedManifests, checked: CheckedObjects, before: CheckedObjects | None
) -> list[CheckFinding]:
    """Return the findings about the manifests, and about others that the manifests cause."""
    known = {finding for _, finding in before.findings} if before is not None else set()
    return [
        admitted.place(key, finding)
        for key, finding in checked.findings
        if key in admitted.places or finding not in known
    ]


def _tests(
    requested: bool | None,
    nginx_path: str | None,
    envoy_path: str | None,
    checked: CheckedObjects,
    admitted: AdmittedManifests,
) -> ProxyTests:
    """Return the tests of the proxies that the Gateways need. Raises CLIError if one is missing."""
    if requested is False:
        return {}
    needed = {controller for _, controller in checked.gateways}
    tests, missing = proxy_tests(needed, nginx_path, envoy_path)
    if missing and (requested or nginx_path or envoy_path):
        raise CLIError(f"--proxy-test: {'; '.join(missing)}")
    admitted.notes += [f"not tested by a proxy: {reason}" for reason in missing]
    return tests


COMMANDS = (check_manifests,)
