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
"""A token is replaced after this share of its life, as a kubelet does."""


class VolumeError(Exception):
    """A volume cannot be filled yet; the message names it and what is missing."""


class Volumes:
    """The volumes of one Pod, under one directory."""

    def __init__(self, client: kube.Client, pod: Mapping[str, Any], directory: Path) -> None:
        self._client = client
        self._pod = pod
        self._directory = directory
        self._refresh_at = float("inf")

    def mounts(self) -> dict[str, str]:
        """Give, for each mount path, the directory that stands for it."""
        container = self._pod["spec"]["containers"][0]
        return {
            mount["mountPath"]: str(self._directory / mount["name"])
            for mount in container.get("volumeMounts") or ()
        }

    @property
    def refresh_in(self) -> float:
        """Seconds until :meth:`fill` is due again."""
        return max(0.0, self._refresh_at - time.monotonic())

    async def fill(self) -> None:
        """Write every volume; what is there already is replaced file by file, atomically.

        Raises VolumeError, or kube.ApiError.
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
                return _chosen({k: t.encode() for k, t in texts.items()}, source, volume["name"])
            case {"secret": {"secretName": name} as source}:
                found = await self._object(resources.SECRETS, name, volume["name"])
                data = found.get("data") or {}
                content = {key: base64.b64decode(value) for key, value in data.items()}
                return _chosen(content, source, volume["name"])
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
        raise VolumeError(f"volume {volume['name']}: a kind that this node does not have")

    async def _object(
        self, resource: resources.Resource, name: str, volume: str
    ) -> Mapping[str, Any]:
        namespace = self._pod["metadata"]["namespace"]
        try:
            return await self._client.get(resource, name, namespace=namespace)
        except kube.NotFound as error:
            missing = f"{resource.kind} {namespace}/{name}"
            raise VolumeError(f"volume {volume}: {missing} does not exist") from error

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


def _chosen(content: dict[str, bytes], source: Mapping[str, Any], volume: str) -> dict[str, bytes]:
    """Give the files that ``items`` ask for, or all. Raises VolumeError."""
    if not source.get("items"):
        return content
    found = {}
    for item in source["items"]:
        if item["key"] not in content:
            raise VolumeError(f"volume {volume}: there is no key {item['key']}")
        if ".." in Path(item["path"]).parts or item["path"].startswith("/"):
            raise VolumeError(f"volume {volume}: path {item['path']} leaves the volume")
        found[item["path"]] = content[item["key"]]
    return found


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
