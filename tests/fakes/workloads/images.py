"""Images of Pods, each as a local command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec


class Image(msgspec.Struct, frozen=True):
    """Local substitute of an image."""

    command: tuple[str, ...]
    """Entry point. A container's ``command`` replaces it; its ``args`` are appended."""
    env: dict[str, str] = {}
    """Environment. With a PATH, ``gatehouse`` is looked up there."""


Images = Mapping[str, Image]


def load(path: Path) -> dict[str, Image]:
    """Read ``image: {command: [...], env: {...}}``; tags are optional."""
    return msgspec.yaml.decode(path.read_bytes(), type=dict[str, Image])


def find(images: Images, pod: Mapping[str, Any]) -> Image | None:
    """Return the image of a Pod or Pod template; None if it is unknown."""
    name = str(pod["spec"]["containers"][0].get("image", ""))
    return images.get(name) or images.get(name.rpartition(":")[0])
