"""Content of a support bundle: everything about an installation, without secrets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import yaml

from gatehouse.apis.resources import DAEMON_SETS, DEFINITIONS, DEPLOYMENTS, EVENTS, PODS
from gatehouse.cli import status_rendering
from gatehouse.cli.data_plane_reader import DataPlaneReader, UnreadableError
from gatehouse.cli.redaction import (
    Redactor,
    redact_envoy_config,
    redact_nginx_config,
    redact_object,
)
from gatehouse.cli.version import CONTROLLER_SELECTOR, read_versions
from gatehouse.compiler.frontends import combined, external_load_balancer
from gatehouse.inspection.data_plane_metrics import MetricsReader
from gatehouse.inspection.object_set import DATA_PLANE_SELECTOR, ObjectSet
from gatehouse.inspection.status_report import report_status
from gatehouse.kube import client as kube
from gatehouse.standalone.node import pods
from gatehouse.standalone.state_directory import State
from kube_base.types.objects import Object
from kube_base.types.resource import Resource

_LOG_BYTES = 1 << 20
"""Maximum size in bytes of the end of each log."""

_BY_LABEL = (
    (PODS, DATA_PLANE_SELECTOR),
    (PODS, CONTROLLER_SELECTOR),
    (DEPLOYMENTS, DATA_PLANE_SELECTOR),
    (DEPLOYMENTS, CONTROLLER_SELECTOR),
    (DAEMON_SETS, DATA_PLANE_SELECTOR),
)
"""Resources of which only objects of Gatehouse are collected."""


class Collection(msgspec.Struct):
    """Files of a bundle by path, and the reasons why others are missing."""

    files: dict[str, str] = {}
    problems: list[str] = []


async def collect_support(kubeconfig: Path, state: State) -> Collection:
    """Return the files of a bundle. Raises ApiError or ConfigError without an API server."""
    result = Collection()
    versions = await read_versions(kubeconfig)
    result.files["versions.json"] = _json(versions)
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        await client.server_version()
        objects = await _read_objects(client, result.problems)
        events = await _list(client, EVENTS, "", result.problems)
        definitions = await _list(client, DEFINITIONS, "", result.problems)
        planes = [item for item in objects if item["kind"] == "Pod"]
        result.files |= await _metrics(client, planes, result.problems)
        result.files |= await _configurations(client, state, planes, result.problems)
    result.files |= _logs(state, planes, result.problems)
    result.files |= _status(objects)
    redactor = Redactor(objects)
    for kind in sorted({item["kind"] for item in objects}):
        own = [redact_object(item) for item in objects if item["kind"] == kind]
        result.files[f"objects/{kind}.yaml"] = _yaml(own)
    result.files["events.yaml"] = _yaml([_event(item) for item in events])
    result.files["definitions.yaml"] = _yaml([_definition(item) for item in definitions])
    result.files = {path: redactor.redact(text) for path, text in result.files.items()}
    result.problems = [redactor.redact(problem) for problem in result.problems]
    return result


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _yaml(values: list[Object]) -> str:
    return str(
        yaml.dump_all(
            values, sort_keys=False, allow_unicode=True, width=1000, Dumper=yaml.CSafeDumper
        )
    )


async def _read_objects(client: kube.Client, problems: list[str]) -> list[Object]:
    balancers = external_load_balancer.LOAD_BALANCER_KINDS
    resources = dict.fromkeys((*combined.KINDS.resources, *balancers))
    requests: list[tuple[Resource, str]] = [(resource, "") for resource in resources]
    lists = await asyncio.gather(
        *(_list(client, resource, labels, problems) for resource, labels in (*requests, *_BY_LABEL))
    )
    result = {}
    for item in (entry for items in lists for entry in items):
        metadata = item["metadata"]
        result[item["kind"], metadata.get("namespace", ""), metadata["name"]] = item
    return [result[key] for key in sorted(result)]


async def _list(
    client: kube.Client, resource: Resource, labels: str, problems: list[str]
) -> list[Object]:
    try:
        return (await client.list(resource, label_selector=labels)).items
    except kube.NotFound:
        # The CRD may be absent.
        return []
    except kube.ApiError as error:
        problems.append(f"{resource.plural}: {error}")
        return []


def _event(item: Object) -> Object:
    fields = ("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "source")
    involved = item.get("involvedObject") or {}
    names = {name: involved.get(name, "") for name in ("kind", "namespace", "name")}
    return {"involvedObject": names, **{name: item.get(name) for name in fields}}


def _definition(item: Object) -> Object:
    spec = item.get("spec") or {}
    annotations = item["metadata"].get("annotations") or {}
    bundle = {name: value for name, value in annotations.items() if name.endswith("-version")}
    versions = [version.get("name") for version in spec.get("versions") or ()]
    return {"name": item["metadata"]["name"], "versions": versions, "annotations": bundle}


def _status(objects: list[Object]) -> dict[str, str]:
    planes = [item for item in objects if item["kind"] == "Pod"]
    reported = report_status(ObjectSet(objects, planes, ()))
    return {
        "status.txt": "\n".join(status_rendering.status_lines(reported, wide=True)),
        "problems.txt": "\n".join(status_rendering.problem_lines(reported)),
        "tree.txt": "\n".join(status_rendering.tree_lines(reported)),
    }


def _directory(pod: Object) -> str:
    return f"data-planes/{pod['metadata']['namespace']}/{pod['metadata']['name']}"


async def _metrics(
    client: kube.Client, planes: list[Object], problems: list[str]
) -> list[tuple[str, str]]:
    pages = await MetricsReader(client).read(planes)
    problems += [f"metrics of {page.pod}: {page.problem}" for page in pages if page.problem]
    return [
        (f"{_directory(pod)}/metrics.txt", page.text)
        for pod, page in zip(planes, pages, strict=True)
        if not page.problem
    ]


async def _configurations(
    client: kube.Client, state: State, planes: list[Object], problems: list[str]
) -> dict[str, str]:
    reader, result = DataPlaneReader(client, state.node), {}
    for pod in planes:
        try:
            stored = await reader.read(pod)
        except UnreadableError as error:
            problems.append(f"configuration of {error}")
            continue
        for path, text in stored.served.texts.items():
            redact = redact_envoy_config if path.endswith(".yaml") else redact_nginx_config
            result[f"{_directory(pod)}/config/{path}"] = redact(text)
    return result


def _logs(state: State, planes: list[Object], problems: list[str]) -> dict[str, str]:
    """Return the logs of data planes that run on this machine."""
    result = {}
    for pod in planes:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if not pods.directory(state.node, namespace, name).is_dir():
            problems.append(f"log of {namespace}/{name}: the data plane is not on this machine")
            continue
        log = pods.log_file(state.node, namespace, name)
        try:
            if log.is_file():
                result[f"{_directory(pod)}/log.txt"] = _end_of(log)
        except OSError as error:
            problems.append(f"log of {namespace}/{name}: {error}")
    return result


def _end_of(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_BYTES))
        return file.read(_LOG_BYTES).decode(errors="replace")
