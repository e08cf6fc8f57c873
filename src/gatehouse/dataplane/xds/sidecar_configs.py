"""What companions of an Envoy are told: files, in a resource that the agent asks for by itself.

Each resource is a directory for one companion, named ``<companion>/<part>``. Like any resource it
is told before what uses it, taken away after that, kept on the agent's disk, and refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from gatehouse.dataplane.xds.resources import SIDECAR_CONFIG, Resource

_PATH = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*")


class Description(msgspec.Struct, frozen=True):
    """The body of a resource, in JSON."""

    files: dict[str, bytes]
    """By path, relative to the directory."""


def resource(
    companion: str, part: str, files: Mapping[str, bytes], *, origins: tuple[str, ...] = ()
) -> Resource:
    """Describe one part of what a companion is to do. Its files may hold secrets."""
    body = msgspec.json.encode(Description(dict(sorted(files.items()))))
    return Resource.make(SIDECAR_CONFIG, f"{companion}/{part}", body, origins=origins, secret=True)


def companion(found: Resource) -> str:
    """Give the name of the companion that a resource is for."""
    return found.name.partition("/")[0]


def files(found: Resource) -> dict[str, bytes]:
    """Read the files of a resource; raises ValueError."""
    try:
        described = msgspec.json.decode(found.body, type=Description).files
    except msgspec.MsgspecError as error:
        raise ValueError(f"{found.name} cannot be read: {error}") from error
    for path in described:
        if not _PATH.fullmatch(path):
            raise ValueError(f"{found.name}: {path!r} is no path of a file in it")
    return described
