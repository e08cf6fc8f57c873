"""Objects for commands that compile them: from an API server, or from manifests in files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from gatehouse.cli.errors import CLIError
from gatehouse.cli.manifest_files import read_manifest_files
from gatehouse.compiler.frontends import combined
from gatehouse.inspection.object_set import ObjectSet, assume_missing, read_objects
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError
from kube_base.types.resource import Resource

_RESOURCES = {resource.kind: resource for resource in combined.KINDS.resources}
ASSUMED_TIME = "1970-01-01T00:00:00Z"
"""Creation time of objects in manifests."""


def read_cluster(
    kubeconfig: Path, resources: Iterable[Resource] = combined.KINDS.resources
) -> ObjectSet:
    """Return the objects of an API server. Raises CLIError.

    ``resources``: by default all that the compiler reads.
    """

    async def read() -> ObjectSet:
        async with kube.Client.from_kubeconfig(kubeconfig) as client:
            return await read_objects(client, resources)

    try:
        return asyncio.run(read())
    except (kube.ApiError, ConfigError) as error:
        raise CLIError(str(error)) from error


def read_manifests(paths: Iterable[Path], namespace: str) -> ObjectSet:
    """Return the objects of files and directories. Raises CLIError.

    ``namespace``: that of objects that name none. Namespaces and GatewayClasses that the manifests
    do not contain are assumed.
    """
    objects = [manifest.value for manifest in read_manifest_files(paths)]
    for entry in objects:
        resource = _RESOURCES.get(entry["kind"])
        metadata = entry["metadata"]
        metadata.setdefault("creationTimestamp", ASSUMED_TIME)
        if resource is not None and resource.namespaced:
            metadata.setdefault("namespace", namespace)
    assumed, notes = assume_missing(objects)
    return ObjectSet([*objects, *assumed], [], notes)
