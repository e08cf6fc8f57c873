"""Configuration of Envoy's sidecars: files in xDS resources that only the agent subscribes to.

Each resource is a directory for one sidecar, named ``<sidecar>/<part>``. Like any resource it is
sent before the resources that use it, removed after them, stored on the agent's disk, and rejected
by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import SIDECAR_CONFIG_TYPE_URL, XdsResource

_PATH = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*")


class Description(msgspec.Struct, frozen=True):
    """JSON body of a resource."""

    files: dict[str, bytes]
    """File contents by path relative to the directory."""


def resource(
    sidecar: str, part: str, files: Mapping[str, bytes], *, origins: tuple[Origin, ...] = ()
) -> XdsResource:
    """Build the resource for one directory of a sidecar. Its files may hold secrets."""
    body = msgspec.json.encode(Description(dict(sorted(files.items()))))
    return XdsResource.make(
        SIDECAR_CONFIG_TYPE_URL, f"{sidecar}/{part}", body, origins=origins, secret=True
    )


def sidecar_name(config: XdsResource) -> str:
    """Return the name of the sidecar that a resource is for."""
    return config.name.partition("/")[0]


def sidecar_files(config: XdsResource) -> dict[str, bytes]:
    """Return the files of a resource. Raises ValueError if its body or a path is invalid."""
    try:
        contents = msgspec.json.decode(config.body, type=Description).files
    except msgspec.MsgspecError as error:
        raise ValueError(f"{config.name}: invalid body: {error}") from error
    for path in contents:
        if not _PATH.fullmatch(path):
            raise ValueError(f"{config.name}: invalid file path {path!r}")
    return contents
