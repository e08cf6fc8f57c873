"""Files that an agent fetches at one time."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import cast

import pytest

from fakes.patience import until_equal
from gatehouse.agent.nginx.file_fetcher import FileFetcher
from gatehouse.agent.nginx.manifests import ManifestEntry
from gatehouse.agent.nginx.mpi_client import MPIClient
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.wire.mpi.v1 import files_pb2


class WaitingControlPlane:
    """A control plane that answers all requests from one moment on."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.most = 0
        """Largest number of files that were requested at one time."""
        self._requested = 0

    async def get_file(self, request: files_pb2.GetFileRequest) -> bytes:
        self._requested += 1
        self.most = max(self.most, self._requested)
        await self.answers.wait()
        self._requested -= 1
        return content_of(request.file_meta.name.rpartition("/")[2], request.file_meta.size)


def content_of(name: str, size: int) -> bytes:
    return name.encode().ljust(size, b"-")[:size]


@pytest.mark.parametrize(
    ("size", "most"), [(8, 64), (1024, 64), (1025, 32), (4096, 16), (4097, 4), (60_000, 4)]
)
async def test_small_files_in_flight_are_64_kib_and_large_ones_four(
    tmp_path: Path, size: int, most: int
) -> None:
    control_plane, store = WaitingControlPlane(), RevisionStore(tmp_path)
    store.prepare()
    entries = []
    for number in range(100):
        name = f"{number}.conf"
        digest = hashlib.sha256(content_of(name, size)).hexdigest()
        entries.append(ManifestEntry(name, digest, size, secret=False))
    fetcher = FileFetcher(lambda: cast(MPIClient, control_plane), store)
    fetching = asyncio.create_task(fetcher.fetch(entries, "c"))
    await until_equal(lambda: control_plane.most, most)
    control_plane.answers.set()
    await fetching
    assert control_plane.most == most
    assert store.missing(entries) == []
