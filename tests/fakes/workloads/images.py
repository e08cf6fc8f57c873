"""Images that this machine can run, each as a local command."""

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


Images = Mapping[str, Image]


class ImagesError(Exception):
    """Raised if a file of images is invalid; the message names the error."""


def load(path: Path) -> dict[str, Image]:
    """Read ``image: {command: [...], env: {...}}``; tags are optional. Raises ImagesError."""
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=dict[str, Image])
    except OSError as error:
        raise ImagesError(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ImagesError(f"{path}: {error}") from error


def find(images: Images, pod: Mapping[str, Any]) -> Image | None:
    """Return the image of a Pod; None if it is unknown or the Pod has several containers."""
    spec = pod.get("spec", {})
    containers: list[dict[str, Any]] = list(spec.get("containers") or ())
    if len(containers) != 1 or spec.get("initContainers"):
        return None
    name = str(containers[0].get("image", ""))
    untagged = name.partition("@")[0]
    if ":" in untagged.rpartition("/")[2]:
        untagged = untagged.rpartition(":")[0]
    return images.get(name) or images.get(untagged)


def command_line(image: Image, container: Mapping[str, Any]) -> list[str]:
    """Return the command line of a container."""
    return [*(container.get("command") or image.command), *(container.get("args") or ())]
