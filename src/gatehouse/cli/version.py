"""`gatehouse version`: versions of this program, the API server, controllers and data planes."""

from __future__ import annotations

import asyncio
import json
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
from prometheus_client.parser import text_string_to_metric_families

import gatehouse
from gatehouse.apis.resources import DEPLOYMENTS, PODS
from gatehouse.cli.output import show
from gatehouse.cli.parameters import kubeconfig_of, kubeconfig_option, output_option
from gatehouse.inspection.condition_summary import condition_status
from gatehouse.inspection.data_plane_metrics import MetricsReader, metrics_url
from gatehouse.inspection.object_set import DATA_PLANE_SELECTOR
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError
from gatehouse.standalone.state_directory import State
from kube_base.runtime.printable import printable
from kube_base.types.objects import Object
from kube_base.types.resource import Resource

CONTROLLER_SELECTOR = "app.kubernetes.io/name=gatehouse"
"""Label selector of the Deployment of the chart."""

_VERSION_LABEL = "app.kubernetes.io/version"

_BUILD = re.compile(r"^gatehouse_(?:agent|controller)_build_info\{.*$", re.MULTILINE)

_LOCAL = "gatehouse up"
"""Name of the controller that runs in no Pod."""


class _Build(NamedTuple):
    """Versions of a running program."""

    version: str
    proxy: str
    """Proxy of an agent with its version; otherwise empty."""


class ComponentVersion(msgspec.Struct, frozen=True, rename="camel"):
    """Version of a component in the cluster."""

    name: str
    """``namespace/name`` of its Deployment or Pod, or the command that runs it."""
    version: str
    """From its label; empty if it has none."""
    images: tuple[str, ...]
    ready: bool
    running: tuple[str, ...] = ()
    """Versions of its running programs, from their metrics; empty if they are not known."""
    proxy: str = ""
    """Proxy with its version; empty if it has none, or if it is not known."""


class Versions(msgspec.Struct, frozen=True, rename="camel"):
    """Versions of everything that is known."""

    client: str
    python: str
    api_server: str = ""
    """Empty if it is not reachable."""
    controllers: tuple[ComponentVersion, ...] = ()
    data_planes: tuple[ComponentVersion, ...] = ()
    problems: tuple[str, ...] = ()
    """Reasons why something is not known."""


async def read_versions(kubeconfig: Path) -> Versions:
    """Return all versions. An API server that is not reachable is a problem and no error."""
    versions = Versions(gatehouse.__version__, platform.python_version())
    try:
        async with kube.Client.from_kubeconfig(kubeconfig) as client:
            server = await client.server_version()
            versions = msgspec.structs.replace(
                versions, api_server=f"{server.get('gitVersion', 'unknown')} at {client.server}"
            )
            problems: list[str] = []
            deployments, controllers, data_planes = [
                await _list(client, resource, selector, problems)
                for resource, selector in (
                    (DEPLOYMENTS, CONTROLLER_SELECTOR),
                    (PODS, CONTROLLER_SELECTOR),
                    (PODS, DATA_PLANE_SELECTOR),
                )
            ]
            reader = MetricsReader(client)
            builds = await _builds_of_pods(reader, [*controllers, *data_planes], problems)
            local = await _local_controller(reader, kubeconfig, problems)
            return msgspec.structs.replace(
                versions,
                controllers=(
                    *(_controller(item, controllers, builds) for item in deployments),
                    *local,
                ),
                data_planes=tuple(_component(item, [item], builds) for item in data_planes),
                problems=tuple(problems),
            )
    except (kube.ApiError, ConfigError, OSError) as error:
        return msgspec.structs.replace(versions, problems=(str(error),))


async def _list(
    client: kube.Client, resource: Resource, selector: str, problems: list[str]
) -> list[Object]:
    try:
        return (await client.list(resource, label_selector=selector)).items
    except kube.Forbidden as error:
        if error.message not in problems:
            problems.append(error.message)
        return []


async def _builds_of_pods(
    reader: MetricsReader, pods: list[Object], problems: list[str]
) -> dict[str, _Build]:
    """Return the versions that run in Pods with an address, by ``namespace/name``."""
    pages = await reader.read([pod for pod in pods if metrics_url(pod)])
    problems += [f"{page.pod}: {page.problem}" for page in pages if page.problem]
    builds = {page.pod: _parse_build(page.text) for page in pages}
    return {pod: build for pod, build in builds.items() if build is not None}


def _parse_build(text: str) -> _Build | None:
    """Return the versions that a page of metrics names; None if it names none."""
    match = _BUILD.search(text)
    if match is None:
        return None
    (family,) = text_string_to_metric_families(f"{match[0]}\n")
    labels = family.samples[0].labels
    proxy = f"{labels['proxy']} {labels['proxy_version']}" if "proxy" in labels else ""
    return _Build(labels["version"], proxy)


async def _local_controller(
    reader: MetricsReader, kubeconfig: Path, problems: list[str]
) -> tuple[ComponentVersion, ...]:
    """Return the controller of `gatehouse up`, if the kubeconfig is that of its state."""
    state = State(kubeconfig.parent)
    try:
        address = (
            state.stored_addresses().health if kubeconfig.name == state.kubeconfig.name else ""
        )
    except msgspec.DecodeError as error:
        problems.append(f"{state.addresses_file}: {error}")
        return ()
    if not address:
        return ()
    page = await reader.read_url(f"http://{address}/metrics")
    if page.problem:
        problems.append(f"{_LOCAL}: {page.problem}")
    build = _parse_build(page.text)
    running = (build.version,) if build else ()
    return (ComponentVersion(_LOCAL, "", (), bool(running), running),)


def _controller(
    deployment: Object, pods: Iterable[Object], builds: Mapping[str, _Build]
) -> ComponentVersion:
    selected = deployment["spec"]["selector"].get("matchLabels") or {}
    namespace = deployment["metadata"]["namespace"]
    own = [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == namespace
        and selected.items() <= (pod["metadata"].get("labels") or {}).items()
    ]
    return _component(deployment, own, builds)


def _component(
    item: Object, pods: Iterable[Object], builds: Mapping[str, _Build]
) -> ComponentVersion:
    metadata, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    template = (spec.get("template") or {}).get("spec") or spec
    images = [container.get("image", "") for container in template.get("containers") or ()]
    name = f"{metadata['namespace']}/{metadata['name']}"
    kind = "Available" if item["kind"] == "Deployment" else "Ready"
    ready = condition_status(status.get("conditions"), kind)[0] == "True"
    version = (metadata.get("labels") or {}).get(_VERSION_LABEL, "")
    names = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods]
    known = [builds[name] for name in names if name in builds]
    running = tuple(sorted({build.version for build in known}))
    proxies = sorted({build.proxy for build in known})
    return ComponentVersion(name, version, tuple(images), ready, running, ", ".join(proxies))


def version_lines(versions: Versions) -> Iterator[str]:
    """Yield the lines of the text."""
    yield f"{'client':<13}{versions.client} (Python {versions.python})"
    yield f"{'API server':<13}{versions.api_server or 'unknown'}"
    for title, components in (
        ("controller", versions.controllers),
        ("data plane", versions.data_planes),
    ):
        for component in components:
            yield printable(f"{title:<13}{component.name}: {_text(component)}")
    yield from (printable(f"not known: {problem}") for problem in versions.problems)


def _text(component: ComponentVersion) -> str:
    version = ", ".join(component.running) or component.version or "unknown"
    proxy = f", {component.proxy}" if component.proxy else ""
    images = f" ({', '.join(component.images)})" if component.images else ""
    return f"{version}{proxy}{images}{'' if component.ready else ', not ready'}"


@click.command("version")
@output_option
@kubeconfig_option
def show_versions(output: str, kubeconfig: Path | None) -> None:
    """Show the versions of this program, the API server, controllers and data planes.

    \b
    gatehouse version
    gatehouse version -o json

    Running controllers, agents and proxies tell their versions in their metrics, which are read
    from the Pod or through the API server (permission `get` on `pods/proxy`).

    The exit status is 0 even if the API server is not reachable. `gatehouse --version` shows the
    version of this program only.
    """
    versions = asyncio.run(read_versions(kubeconfig_of(kubeconfig)))
    if output == "json":
        show(json.dumps(msgspec.to_builtins(versions), indent=2))
        return
    for line in version_lines(versions):
        show(line)


COMMANDS = (show_versions,)
