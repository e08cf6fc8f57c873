"""Two installations on one state directory.

Who: an operator or a service manager that starts `gatehouse up` or an API server twice. Through
what: the same directory, also by another path. What must hold: the second one changes nothing and
names the directory, and the directory is free when the first one has ended.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.standalone.state_directory import State, StateError
from kube_api_server.storage import factory
from kube_api_server.storage.entries import UnavailableError
from kube_base.runtime import private_files


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_second_installation_does_not_start_on_a_used_directory(tmp_path: Path) -> None:
    directory, link = tmp_path / "state", tmp_path / "link"
    first = State(directory)
    first.acquire()
    link.symlink_to(directory)
    before = contents(directory)
    with pytest.raises(StateError, match="state is in use by another `gatehouse up`"):
        State(directory).acquire()
    # The lock is that of the directory, whatever its path.
    with pytest.raises((StateError, private_files.LockedError)):
        State(link).acquire()
    assert contents(directory) == before
    first._lock.close()
    State(directory).acquire()


async def test_second_api_server_does_not_open_a_used_storage(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = await factory.open_store(str(path))
    with pytest.raises(UnavailableError, match="in use"):
        await factory.open_store(str(path))
    await store.put("/core/configmaps/d/a", {"metadata": {"name": "a"}}, 0)
    await store.close()
    again = await factory.open_store(str(path))
    assert again.get("/core/configmaps/d/a") is not None
    await again.close()
