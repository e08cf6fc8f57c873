"""Files that an agent fetches at one time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from fakes.patience import until_equal
from gatehouse.agent.nginx import file_fetcher
from gatehouse.agent.nginx.file_fetcher import FileFetcher
from gatehouse.agent.nginx.manifests import ManifestEntry
from gatehouse.agent.nginx.mpi_client import MPIClient
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.wire.gatehouse.v1 import batches_pb2
from gatehouse.wire.mpi.v1 import files_pb2
from kube_base.runtime.private_files import UnsafePathError


class WaitingControlPlane:
    """A control plane that answers all requests from one moment on."""

    def __init__(self, batch: int) -> None:
        self.serves_batches = batch > 0
        self.answers = asyncio.Event()
        self.most = 0
        """Largest number of files that were requested at one time."""
        self.calls = 0
        self._batch = batch
        self._requested = 0

    async def get_file(self, request: files_pb2.GetFileRequest) -> bytes:
        [content] = await self._contents([request.file_meta])
        return content

    async def get_files(self, request: batches_pb2.GetFilesRequest) -> list[bytes]:
        return (await self._contents(request.file_metas))[: self._batch]

    async def _contents(self, metas: Sequence[files_pb2.FileMeta]) -> list[bytes]:
        self.calls += 1
        self._requested += len(metas)
        self.most = max(self.most, self._requested)
        await self.answers.wait()
        self._requested -= len(metas)
        return [content_of(meta.name.rpartition("/")[2], meta.size) for meta in metas]


def content_of(name: str, size: int) -> bytes:
    return name.encode().ljust(size, b"-")[:size]


def files_of(count: int, size: int) -> list[ManifestEntry]:
    names = [f"{number}.conf" for number in range(count)]
    contents = ((name, content_of(name, size)) for name in names)
    return [
        ManifestEntry(name, hashlib.sha256(content).hexdigest(), size, secret=False)
        for name, content in contents
    ]


class Fetching:
    """An agent that fetches files from a control plane that answers later."""

    def __init__(self, directory: Path, batch: int = 1000) -> None:
        """`batch`: largest number of files in one message; 0: only one by one."""
        self.control_plane = WaitingControlPlane(batch)
        self.store = RevisionStore(directory)
        self.store.prepare()
        self._fetcher = FileFetcher(lambda: cast(MPIClient, self.control_plane), self.store)

    async def fetch(self, entries: list[ManifestEntry], first: int) -> int:
        """Fetch files, of which `first` are requested at first; return the largest number."""
        self.control_plane.answers.clear()
        self.control_plane.most = 0
        fetching = asyncio.create_task(self._fetcher.fetch(entries, "c"))
        await until_equal(lambda: self.control_plane.most, first)
        self.control_plane.answers.set()
        await fetching
        assert self.store.missing(entries) == []
        return self.control_plane.most


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_fetcher, "QUICK_SECONDS", 0.0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_fetcher, "QUICK_SECONDS", 3600.0)


BATCHES = pytest.mark.parametrize("batch", [0, 1000], ids=["one-by-one", "batches"])


@BATCHES
@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(
    ("size", "most"), [(8, 64), (1024, 64), (1025, 32), (4096, 16), (4097, 4), (60_000, 4)]
)
async def test_files_in_flight_on_a_slow_link_are_64_kib_and_large_ones_four(
    tmp_path: Path, size: int, most: int, batch: int
) -> None:
    fetching = Fetching(tmp_path, batch)
    assert await fetching.fetch(files_of(100, size), first=most) == most


@BATCHES
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("size", "first", "most"), [(8, 64, 512), (1025, 32, 256), (4096, 16, 128), (4097, 4, 4)]
)
async def test_small_files_in_flight_grow_while_they_arrive_quickly(
    tmp_path: Path, size: int, first: int, most: int, batch: int
) -> None:
    fetching = Fetching(tmp_path, batch)
    files = files_of(1_500, size)
    await fetching.fetch(files[:700], first)
    assert await fetching.fetch(files[700:], first=most) == most


@pytest.mark.usefixtures("quick")
async def test_files_in_flight_are_as_at_first_after_a_failure(tmp_path: Path) -> None:
    fetching = Fetching(tmp_path)
    await fetching.fetch(files_of(700, 8), first=64)
    [wrong] = files_of(1, 9)
    with pytest.raises(UnsafePathError, match="hash of the content"):
        await fetching.fetch([msgspec.structs.replace(wrong, digest="0" * 64)], first=1)
    await fetching.fetch(files_of(1_500, 8)[700:], first=64)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("count", "size", "batch", "calls"),
    [(640, 1024, 1000, 10), (641, 1024, 1000, 11), (64, 8, 20, 4), (64, 8, 0, 64), (3, 4097, 9, 3)],
)
async def test_small_files_are_fetched_together(
    tmp_path: Path, count: int, size: int, batch: int, calls: int
) -> None:
    """A control plane may send fewer files than requested, or only one by one."""
    fetching = Fetching(tmp_path, batch)
    await fetching.fetch(files_of(count, size), first=min(count, 64 if size <= 4096 else 4))
    assert fetching.control_plane.calls == calls
