"""Key-value zones: one file of pairs for each zone in a file set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.plus.client import Api
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.upstreams import KEYVALS


class Zone(msgspec.Struct, frozen=True):
    """Desired content of a zone."""

    kind: str
    """`http` or `stream`."""
    name: str
    pairs: Mapping[str, str]


def manifest_zones(revisions: RevisionStore, manifest: Manifest) -> list[Zone]:
    """Return the zones of a manifest. Raises OSError or ValueError."""
    result = []
    for entry in manifest.entries:
        if not entry.path.startswith(KEYVALS):
            continue
        try:
            pairs = msgspec.json.decode(revisions.content(entry), type=dict[str, str])
        except msgspec.DecodeError as error:
            raise ValueError(f"{entry.path}: {error}") from error
        kind = "http" if entry.path.startswith(KEYVALS[0]) else "stream"
        result.append(Zone(kind, PurePosixPath(entry.path).stem, pairs))
    return result


async def synchronise_keyvals(api: Api, zone: Zone) -> None:
    """Make the content of a zone equal to its pairs. Raises PlusApiError."""
    path = (zone.kind, "keyvals", zone.name)
    present = await api.get(*path)
    if not present and zone.pairs:
        # The API accepts several pairs at once only for an empty zone.
        await api.post(*path, body=zone.pairs)
        return
    for key, value in zone.pairs.items():
        if key not in present:
            await api.post(*path, body={key: value})
        elif present[key] != value:
            await api.patch(*path, body={key: value})
    for key in present.keys() - zone.pairs.keys():
        await api.patch(*path, body={key: None})
