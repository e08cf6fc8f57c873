"""Volumes as directories: projected tokens, ConfigMaps, Secrets, scratch space."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gatehouse.apis import resources
from gatehouse.kube import client as kube

REFRESH_AT = 0.8
"""Fraction of a token's lifetime after which it is replaced, as in a kubelet."""


class VolumeError(Exception):
    """Raised if a volume cannot be written yet; the message names it and the missing object."""


class Volumes:
    """Volumes of one Pod, as directories under one directory."""

    def __init__(self, client: kube.Client, pod: Mapping[str, Any], directory: Path) -> None:
        self._client = client
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
        for volume in self._pod["spec"].get("volumes") or ():
            directory = self._directory / volume["name"]
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            for path, content in (await self._contents(volume)).items():
                _write(directory / path, content)

    async def _contents(self, volume: Mapping[str, Any]) -> dict[str, bytes]:
        match volume:
            case {"configMap": {"name": name} as source}:
                found = await self._object(resources.CONFIG_MAPS, name, volume["name"])
                texts = found.get("data") or {}
                return _selected_files(
                    {k: t.encode() for k, t in texts.items()}, source, volume["name"]
                )
            case {"secret": {"secretName": name} as source}:
                found = await self._object(resources.SECRETS, name, volume["name"])
                data = found.get("data") or {}
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
            case {"emptyDir": _}:
                return {}
        raise VolumeError(f"volume {volume['name']}: type not supported by this node")

    async def _object(
        self, resource: resources.Resource, name: str, volume: str
    ) -> Mapping[str, Any]:
        namespace = self._pod["metadata"]["namespace"]
        try:
            return await self._client.get(resource, name, namespace=namespace)
        except kube.NotFound as error:
            missing = f"{resource.kind} {namespace}/{name}"
            raise VolumeError(f"volume {volume}: {missing} not found") from error

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


def _write(path: Path, content: bytes) -> None:
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    staged = path.with_name(f".{path.name}")
    staged.unlink(missing_ok=True)
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    staged.rename(path)
