"""Volumes as directories: projected tokens, ConfigMaps, Secrets, scratch space.

A data plane with a user of its own can read the first three, and owns its scratch space only: the
node writes no file into a directory that another user controls.
"""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gatehouse.agent import run_directory
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone.node import trust
from kube_base.runtime import private_files
from kube_base.types.resource import Resource

REFRESH_AT = 0.8
"""Fraction of a token's lifetime after which it is replaced, as in a kubelet."""


class VolumeError(Exception):
    """Raised if a volume cannot be written yet; the message names it and the missing object."""


class Volumes:
    """Volumes of one Pod, as directories under one directory."""

    def __init__(
        self, client: kube.Client, pod: Mapping[str, Any], directory: Path, user: int = 0
    ) -> None:
        """``user``: user and group of the Pod's process, 0 for those of the node."""
        self._client = client
        self._user = user
        self._pod = pod
        self._directory = directory
        self._refresh_at = float("inf")

    def mounts(self) -> dict[str, str]:
        """Return the directory of each mount path."""
        container = self._pod["spec"]["containers"][0]
        return {
            mount["mountPath"]: str(self._directory / mount["name"])
            for mount in container.get("volumeMounts") or ()
        }

    @property
    def refresh_in(self) -> float:
        """Return the seconds until :meth:`fill` is due again."""
        return max(0.0, self._refresh_at - time.monotonic())

    async def fill(self) -> None:
        """Write all volumes; existing files are replaced atomically one by one.

        Raises VolumeError if an object is missing, or kube.ApiError.
        """
        self._refresh_at = float("inf")
        self._make_directory(self._directory)
        for volume in self._pod["spec"].get("volumes") or ():
            directory = self._directory / volume["name"]
            if "emptyDir" in volume:
                self._make_scratch(directory)
                continue
            self._make_directory(directory)
            for path, content in (await self._contents(volume)).items():
                self._write(directory / path, content)

    def _make_directory(self, path: Path) -> None:
        if self._user:
            private_files.make_group_dir(path, self._user)
        else:
            private_files.make_private_dir(path)

    def _make_scratch(self, path: Path) -> None:
        if not self._user:
            private_files.make_private_dir(path)
        elif not path.exists():
            # That of an earlier data plane may belong to another user.
            substitute = run_directory.short_path(path)
            if substitute != path:
                shutil.rmtree(substitute, ignore_errors=True)
            private_files.make_foreign_dir(path, self._user)

    def _write(self, path: Path, content: bytes) -> None:
        if path.exists() and path.read_bytes() == content:
            return
        self._make_directory(path.parent)
        group = self._user or -1
        private_files.replace_private_file(path, content, group=group)

    async def _contents(self, volume: Mapping[str, Any]) -> dict[str, bytes]:
        match volume:
            case {"configMap": {"name": name} as source}:
                document = await self._object(resources.CONFIG_MAPS, name, volume["name"])
                texts = document.get("data") or {}
                return _selected_files(
                    {k: t.encode() for k, t in texts.items()}, source, volume["name"]
                )
            case {"secret": {"secretName": name} as source}:
                document = await self._object(resources.SECRETS, name, volume["name"])
                data = document.get("data") or {}
                content = {key: base64.b64decode(value) for key, value in data.items()}
                return _selected_files(content, source, volume["name"])
            case {"projected": {"sources": sources}}:
                return {
                    source["serviceAccountToken"]["path"]: await self._token(
                        source["serviceAccountToken"]
                    )
                    for source in sources
                    if "serviceAccountToken" in source
                }
        raise VolumeError(f"volume {volume['name']}: type not supported by this node")

    async def _object(self, resource: Resource, name: str, volume: str) -> Mapping[str, Any]:
        namespace = self._pod["metadata"]["namespace"]
        what = f"{resource.kind} {namespace}/{name}"
        try:
            obj = await self._client.get(resource, name, namespace=namespace)
        except kube.NotFound as error:
            raise VolumeError(f"volume {volume}: {what} not found") from error
        if not trust.may_mount(self._pod, obj):
            raise VolumeError(f"volume {volume}: {what} must be written by the controller")
        return obj

    async def _token(self, source: Mapping[str, Any]) -> bytes:
        metadata = self._pod["metadata"]
        life = source.get("expirationSeconds", 3600)
        audience = source.get("audience")
        token, _ = await self._client.create_token(
            metadata["namespace"],
            self._pod["spec"].get("serviceAccountName", "default"),
            [audience] if audience else [],
            life,
            metadata["name"],
            metadata["uid"],
        )
        self._refresh_at = min(self._refresh_at, time.monotonic() + life * REFRESH_AT)
        return token.encode()


def _selected_files(
    content: dict[str, bytes], source: Mapping[str, Any], volume: str
) -> dict[str, bytes]:
    """Return the files selected by ``items``, or all. Raises VolumeError."""
    if not source.get("items"):
        return content
    files = {}
    for item in source["items"]:
        if item["key"] not in content:
            raise VolumeError(f"volume {volume}: key {item['key']} not found")
        if ".." in Path(item["path"]).parts or item["path"].startswith("/"):
            raise VolumeError(f"volume {volume}: path {item['path']} must not leave the volume")
        files[item["path"]] = content[item["key"]]
    return files
