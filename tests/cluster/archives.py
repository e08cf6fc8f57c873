"""OCI image archives without a container engine, as `ctr images import` reads them.

Source: OCI image specification 1.0 (image layout, manifest, configuration).
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_TYPE = "application/vnd.oci.image"
_NAME = "io.containerd.image.name"


class Image(NamedTuple):
    """An image of uncompressed layers."""

    name: str
    layers: tuple[Path, ...]
    config: Mapping[str, Any]
    """The keys of an image's ``config``, such as ``Entrypoint``."""


def write_archive(path: Path, images: Iterable[Image]) -> None:
    """Write images, with each layer once."""
    listed = []
    with tarfile.open(path, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        digests: dict[Path, str] = {}
        for image in images:
            for layer in image.layers:
                if layer not in digests:
                    digests[layer] = _file_digest(layer)
                    archive.add(layer, _blob(digests[layer]))
            listed.append(_add_manifest(archive, image, digests))
        index = {"schemaVersion": 2, "manifests": listed}
        _add(archive, "index.json", json.dumps(index).encode())


def _add_manifest(
    archive: tarfile.TarFile, image: Image, digests: Mapping[Path, str]
) -> dict[str, Any]:
    """Add an image without its layers. Return its entry in the index."""
    layers = [
        _descriptor("layer.v1.tar", digests[layer], layer.stat().st_size) for layer in image.layers
    ]
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": image.config,
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
    }
    config = _add_blob(archive, "config.v1+json", described)
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": config,
        "layers": layers,
    }
    added = _add_blob(archive, "manifest.v1+json", manifest)
    return added | {"annotations": {_NAME: image.name}}


def _add_blob(archive: tarfile.TarFile, kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    content = json.dumps(value).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    _add(archive, _blob(digest), content)
    return _descriptor(kind, digest, len(content))


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": f"{_TYPE}.{kind}", "digest": digest, "size": size}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
