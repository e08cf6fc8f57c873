"""Key-value zones: a small file of pairs for each, as a bundle delivers it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.plus.client import Api
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.upstreams import KEYVALS


class Zone(msgspec.Struct, frozen=True):
    """What a zone is to hold, and nothing else."""

    kind: str
    """``http`` or ``stream``."""
    name: str
    pairs: Mapping[str, str]


def zones(generations: RevisionStore, manifest: Manifest) -> list[Zone]:
    """Read the zones of a manifest; raises OSError or ValueError."""
    found = []
    for entry in manifest.entries:
        if not entry.path.startswith(KEYVALS):
            continue
        try:
            pairs = msgspec.json.decode(generations.content(entry), type=dict[str, str])
        except msgspec.DecodeError as error:
            raise ValueError(f"{entry.path}: {error}") from error
        kind = "http" if entry.path.startswith(KEYVALS[0]) else "stream"
        found.append(Zone(kind, PurePosixPath(entry.path).stem, pairs))
    return found


async def synchronise(api: Api, zone: Zone) -> None:
    """Make a zone hold just its pairs; raises PlusError."""
    path = (zone.kind, "keyvals", zone.name)
    present = await api.get(*path)
    if not present and zone.pairs:
        # Several pairs at once are only taken by an empty zone.
        await api.post(*path, body=zone.pairs)
        return
    for key, value in zone.pairs.items():
        if key not in present:
            await api.post(*path, body={key: value})
        elif present[key] != value:
            await api.patch(*path, body={key: value})
    for key in present.keys() - zone.pairs.keys():
        await api.patch(*path, body={key: None})
