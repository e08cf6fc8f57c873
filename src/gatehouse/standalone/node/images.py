"""Which images this machine can run, each as a command of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec


class Image(msgspec.Struct, frozen=True):
    """What stands for an image."""

    command: tuple[str, ...]
    """The entry point; a container's ``command`` takes its place, its ``args`` follow."""
    env: dict[str, str] = {}


Images = Mapping[str, Image]


class ImagesError(Exception):
    """A file of images that cannot be used; the message says why."""


def load(path: Path) -> dict[str, Image]:
    """Read ``image: {command: [...], env: {...}}``; an image may be named without its tag."""
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=dict[str, Image])
    except OSError as error:
        raise ImagesError(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ImagesError(f"{path}: {error}") from error


def find(images: Images, pod: Mapping[str, Any]) -> Image | None:
    """Give what runs a Pod; None if it has another image, or more containers than one."""
    spec = pod.get("spec", {})
    containers: list[dict[str, Any]] = list(spec.get("containers") or ())
    if len(containers) != 1 or spec.get("initContainers"):
        return None
    name = str(containers[0].get("image", ""))
    untagged = name.partition("@")[0]
    if ":" in untagged.rpartition("/")[2]:
        untagged = untagged.rpartition(":")[0]
    return images.get(name) or images.get(untagged)


def words(image: Image, container: Mapping[str, Any]) -> list[str]:
    """Give what to start for a container."""
    return [*(container.get("command") or image.command), *(container.get("args") or ())]
