"""Damaged storage: a crash, a disk or an operator truncates, empties or removes the database.

The server must name the file and the remedy, and must never take the remains for a new
installation. Two processes must not use one database.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.patience import SECONDS
from fakes.process import ApiServer
from gatehouse.apiserver_extension.extension import STORAGE_NAMES
from gatehouse.standalone.node import node
from kube_api_server.storage import factory
from kube_api_server.storage.entries import DamagedStorageError, UnavailableError
from kube_api_server.storage.names import Storage
from kube_base.runtime.private_files import LockedError

PREFIX = "/core/configmaps/default/"


async def filled(directory: Path) -> Path:
    """Create a database with some objects, and return its path."""
    store = await factory.open_store(str(directory), names=STORAGE_NAMES)
    for number in range(200):
        value = {"metadata": {"name": f"n{number}"}, "data": {"text": "x" * 500}}
        await store.put(f"{PREFIX}n{number}", value, 0)
    await store.close()
    return directory / STORAGE_NAMES.database


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def overwrite(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)


def overwrite_pages(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:8192] + b"\xff" * (len(data) - 8192))


def change_values(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'{"metadata"', b'{"metadat\x00"'))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()
    Path(f"{path}-wal").write_bytes(b"")


DAMAGES = [truncate, overwrite, overwrite_pages, change_values, empty, remove]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damaged_database_is_named_with_the_remedy(tmp_path: Path, damage: object) -> None:
    path = await filled(tmp_path / "db")
    damage(path)  # type: ignore[operator]
    before = {file.name: file.read_bytes() for file in path.parent.glob("gatehouse.db*")}
    for _ in range(2):
        with pytest.raises(DamagedStorageError) as caught:
            await factory.open_store(str(path.parent), names=STORAGE_NAMES)
        assert str(path) in str(caught.value)
        command = f"gatehouse apiserver restore --storage {path.parent} --from"
        assert command in str(caught.value)
    # The remains stay for a repair. SQLite may update its index of the log.
    after = {file.name: file.read_bytes() for file in path.parent.glob("gatehouse.db*")}
    assert after.get("gatehouse.db") == before.get("gatehouse.db")


async def test_interrupted_creation_is_completed(tmp_path: Path) -> None:
    directory = tmp_path / "db"
    directory.mkdir(mode=0o700)
    (directory / ".gatehouse.db").write_bytes(b"")
    (directory / "lock").write_bytes(b"")
    store = await factory.open_store(str(directory), names=STORAGE_NAMES)
    assert store.revision == 0
    await store.close()


@pytest.mark.process
@pytest.mark.parametrize("damage", [truncate, overwrite, empty])
def test_command_ends_with_the_remedy_and_a_restore_succeeds(
    tmp_path: Path, damage: object
) -> None:
    server = ApiServer(tmp_path / "a")
    server.start()
    backup = str(tmp_path / "backup")
    succeed("backup", "--storage", server.storage, "--to", backup)
    server.stop()
    path = Path(server.storage) / STORAGE_NAMES.database
    damage(path)  # type: ignore[operator]
    for command in (server.command()[3:], ["backup", "--storage", server.storage, "--to", "x"]):
        done = run(*command)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert f"gatehouse apiserver restore --storage {server.storage}" in done.stderr
        assert str(path) in done.stderr
    shutil.copytree(server.storage, tmp_path / "kept")
    for file in path.parent.glob("gatehouse.db*"):
        file.unlink()
    succeed("restore", "--storage", server.storage, "--from", backup)
    server.start()
    server.stop()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    words = words if words[0] == "apiserver" else ("apiserver", *words)
    command = [sys.executable, "-m", "gatehouse", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


def succeed(*words: str) -> None:
    done = run(*words)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
def test_second_server_on_a_storage_is_rejected_and_the_first_goes_on(tmp_path: Path) -> None:
    server = ApiServer(tmp_path / "a")
    second = ApiServer(tmp_path / "b", storage=server.storage)
    server.start()
    try:
        done = run(*second.command()[3:])
        assert done.returncode == 1
        assert f"{server.storage} is in use by another process" in done.stderr
        assert "Traceback" not in done.stderr
        assert server.ready()
    finally:
        server.stop()


async def test_restore_into_a_storage_in_use_is_rejected(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "db"), STORAGE_NAMES)
    store = await factory.open_store(storage.address, names=storage.names)
    with pytest.raises(UnavailableError, match="in use"), factory.directory_lock(storage):
        pass
    await store.close()


async def test_second_node_in_a_directory_is_rejected(tmp_path: Path) -> None:
    """Two nodes would start every data plane twice."""
    import asyncio

    from kube_base.runtime import private_files

    options = node.NodeOptions(
        kubeconfig=tmp_path / "none", directory=tmp_path / "n", pool="127.0.0.0/24", nginx="nginx"
    )
    (tmp_path / "n").mkdir(mode=0o700)
    with private_files.locked(tmp_path / "n" / "lock"), pytest.raises(LockedError, match="in use"):
        await node.run_node(options, asyncio.Event(), asyncio.Event())
