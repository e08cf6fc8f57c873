"""Local users: other accounts on the machine read and prepare files and directories.

They must not read any secret of an installation, and must not choose the content of any file that
it uses.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import source_trees
from fakes.installation import Installation, address, apply, hello
from fakes.patience import until
from fakes.process import ApiServer
from gatehouse.agent.envoy import paths as envoy_paths
from gatehouse.agent.nginx import paths as nginx_paths
from gatehouse.standalone.node.data_plane_users import DEFAULT_RANGE, parse_range
from gatehouse.standalone.state_directory import State, StateError
from kube_api_server.storage import backup, factory
from kube_api_server.storage.backup import BackupRecord
from kube_api_server.storage.names import DEFAULT_NAMES
from kube_base.runtime import private_files
from kube_base.runtime.private_files import ForeignPathError

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can create files of others")


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Set the umask that reveals most."""
    former = os.umask(0)
    yield
    os.umask(former)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_directory(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o755)
    return path


# The helper.


@pytest.mark.parametrize("umask", [0, 0o022, 0o277])
def test_new_directory_is_private_with_any_umask(tmp_path: Path, umask: int) -> None:
    former = os.umask(umask)
    try:
        private_files.make_private_dir(tmp_path / "a")
    finally:
        os.umask(former)
    assert mode(tmp_path / "a") == 0o700


def test_open_directory_and_everything_in_it_are_restricted(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "d")
    below = open_directory(directory / "below")
    for path in (directory / "file", below / "file", below / "program"):
        path.write_text("secret")
    (below / "program").chmod(0o755)
    (directory / "link").symlink_to("/etc/passwd")
    assert private_files.make_private_dir(directory, tree=True)
    assert (mode(directory), mode(below)) == (0o700, 0o700)
    assert (mode(directory / "file"), mode(below / "file")) == (0o600, 0o600)
    assert mode(below / "program") == 0o700
    assert mode(Path("/etc/passwd")) == 0o644
    assert not private_files.make_private_dir(directory, tree=True)


@needs_root
def test_directory_of_another_user_is_rejected_with_remedy(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "d")
    os.chown(directory, NOBODY, NOBODY)
    with pytest.raises(ForeignPathError) as caught:
        private_files.make_private_dir(directory)
    for words in (str(directory), "mode 0755", "owner nobody", f"chown root {directory}"):
        assert words in str(caught.value)
    assert mode(directory) == 0o755


@needs_root
@pytest.mark.parametrize("whose", ["link", "target"])
def test_link_of_or_to_another_user_is_rejected(tmp_path: Path, whose: str) -> None:
    target, link = open_directory(tmp_path / "target"), tmp_path / "link"
    link.symlink_to(target)
    os.chown(link if whose == "link" else target, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(ForeignPathError, match="owner nobody"):
        private_files.make_private_dir(link)


def test_link_to_own_directory_is_followed(tmp_path: Path) -> None:
    target = open_directory(tmp_path / "target")
    (tmp_path / "link").symlink_to(target)
    private_files.make_private_dir(tmp_path / "link")
    assert mode(target) == 0o700


def test_shared_directory_is_rejected_and_unchanged(tmp_path: Path) -> None:
    """A mistyped path must not close /tmp or /srv to everybody."""
    sticky, used = open_directory(tmp_path / "sticky"), open_directory(tmp_path / "used")
    sticky.chmod(0o1777)
    (used / "website").write_text("")
    for path in (sticky, used):
        before = mode(path)
        with pytest.raises(ForeignPathError, match="name a directory of its own"):
            private_files.make_private_dir(path, marker="gatehouse.db")
        assert mode(path) == before
    (used / "gatehouse.db").write_text("")
    private_files.make_private_dir(used, marker="gatehouse.db")
    assert mode(used) == 0o700


@needs_root
@pytest.mark.parametrize("directory_mode", [0o777, 0o755])
def test_planted_file_is_rejected_where_others_could_write(
    tmp_path: Path, directory_mode: int
) -> None:
    directory = open_directory(tmp_path / "d")
    planted = directory / "ca.key"
    planted.write_text("known to the attacker")
    os.chown(planted, NOBODY, NOBODY)
    directory.chmod(directory_mode)
    if directory_mode == 0o777:
        with pytest.raises(ForeignPathError, match=r"ca\.key"):
            private_files.make_private_dir(directory, tree=True)
    else:
        # Only the owner of the directory can have created it, as NGINX does for its workers.
        private_files.make_private_dir(directory, tree=True)
        assert planted.stat().st_uid == NOBODY


def test_lock_does_not_truncate_the_target_of_a_planted_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"), private_files.locked(tmp_path / "lock"):
        pass
    assert victim.read_text() == "precious"


# Storage.


async def test_database_in_an_open_directory_is_restricted(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "db")
    store = await factory.open_store(str(directory))
    await store.put("/core/secrets/d/a", {"metadata": {"name": "a"}}, 0)
    database = DEFAULT_NAMES.database
    names = {database, f"{database}-wal", f"{database}-shm", "lock"}
    assert {path.name: mode(path) for path in directory.iterdir()} == dict.fromkeys(names, 0o600)
    assert mode(directory) == 0o700
    for path in (directory, *directory.iterdir()):
        path.chmod(0o755)
    await store.close()
    # As an earlier version left it.
    store = await factory.open_store(str(directory))
    assert {mode(path) for path in directory.iterdir()} == {0o600}
    assert mode(directory) == 0o700
    await store.close()


@needs_root
@pytest.mark.parametrize("name", [DEFAULT_NAMES.database, f"{DEFAULT_NAMES.database}-wal", "lock"])
async def test_planted_database_file_is_rejected(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "db"
    await (await factory.open_store(str(directory))).close()
    (directory / name).touch()
    os.chown(directory / name, NOBODY, NOBODY)
    with pytest.raises(ForeignPathError, match=name):
        await factory.open_store(str(directory))


def test_backup_over_a_readable_file_is_private(tmp_path: Path) -> None:
    target = tmp_path / "backup"
    target.write_text("")
    target.chmod(0o644)
    backup.dump_backup(target, 1, [BackupRecord("/core/secrets/a/b", 1, b'{"x":1}')])
    assert mode(target) == 0o600
    assert next(backup.load_backup(target)[1]).key == "/core/secrets/a/b"


@pytest.mark.process
def test_apiserver_command_on_an_open_directory_reveals_nothing(tmp_path: Path) -> None:
    server = ApiServer(tmp_path / "a", "--audit-log-path", str(tmp_path / "audit" / "log"))
    storage = Path(server.storage)
    storage.mkdir()
    storage.chmod(0o755)
    server.start()
    try:
        names = ("gatehouse.db", "gatehouse.db-wal", "gatehouse.db-shm", "lock")
        assert {name: mode(storage / name) for name in names} == dict.fromkeys(names, 0o600)
        assert (mode(storage), mode(tmp_path / "audit")) == (0o700, 0o700)
        assert mode(tmp_path / "audit" / "log") == 0o600
        if os.geteuid() == 0:
            command = ["cat", str(storage / "gatehouse.db")]
            done = subprocess.run(command, user=NOBODY, capture_output=True, check=False)
            assert b"Permission denied" in done.stderr
    finally:
        server.stop()


@needs_root
@pytest.mark.process
def test_apiserver_command_names_the_foreign_directory(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "db")
    os.chown(directory, NOBODY, NOBODY)
    command = [sys.executable, "-m", "gatehouse", "apiserver", "--storage", str(directory)]
    certificates = ("--tls-cert-file", "--tls-private-key-file", "--client-ca-file")
    for option in certificates:
        command += [option, "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{directory} (mode 0755, owner nobody) must be owned by root" in done.stderr
    assert "Traceback" not in done.stderr


# State directory.


def test_state_directory_of_an_earlier_version_is_restricted(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "state")
    state = State(directory)
    state.pki.ensure()
    state.write_kubeconfigs("https://127.0.0.1:1")
    for path in (state.pki.token_key, state.kubeconfig, state.pki.ca().key.parent):
        path.chmod(0o777)
    state.acquire()
    assert (mode(directory), mode(state.pki.ca().key.parent)) == (0o700, 0o700)
    assert (mode(state.pki.token_key), mode(state.kubeconfig)) == (0o700, 0o700)
    state.pki.ensure()
    assert mode(state.pki.token_key) == 0o600


def test_second_installation_in_a_state_directory_is_rejected(tmp_path: Path) -> None:
    first, second = State(tmp_path / "s"), State(tmp_path / "s")
    first.acquire()
    with pytest.raises(StateError, match="in use by another `gatehouse up`"):
        second.acquire()


@needs_root
def test_state_directory_of_another_user_is_rejected(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "state")
    os.chown(directory, NOBODY, NOBODY)
    with pytest.raises(StateError, match="owner nobody"):
        State(directory).acquire()


# Agents.


@needs_root
@pytest.mark.parametrize("layout_of", [nginx_paths.nginx_paths, envoy_paths.envoy_paths])
def test_short_run_directory_that_another_user_created_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout_of: Callable[[Path, Path], Any]
) -> None:
    """Its name in /tmp is predictable. Its sockets are trusted as the proxy."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "root").mkdir()
    layout = layout_of(tmp_path / "root", tmp_path / ("long" * 40))
    assert layout.run.parent == tmp_path
    layout.run.mkdir(mode=0o777)
    os.chown(layout.run, NOBODY, NOBODY)
    with pytest.raises(ForeignPathError, match="owner nobody"):
        layout.prepare()


# Everything.

PRIVATE_BY_DIRECTORY = {"version.sock"}
"""Files that are open to all users, in directories that no other user can enter."""

EXPECTED_FILES = {
    "addresses.json", "apiserver/gatehouse.db", "apiserver/gatehouse.db-shm",
    "apiserver/gatehouse.db-wal", "apiserver/lock", "audit/audit.log", "controller.kubeconfig",
    "kubeconfig", "lock", "node.kubeconfig", "node/lock", "pki/admin.key", "pki/apiserver.key",
    "pki/ca.key", "pki/channel.key", "pki/controller.key", "pki/node.key", "pki/tokens.key",
    "run/apiserver.json", "run/controller.json", "run/node.json",
}  # fmt: skip
POD_FILES = {
    "build", "log", "log.index", "process.json", "volumes/data/generations/1/nginx.conf",
    "volumes/run/error.log", "volumes/run/nginx", "volumes/run/nginx.pid", "volumes/token/token",
}  # fmt: skip
PROGRAMS = {"volumes/run/nginx"}
"""Files of a Pod that their owner executes."""


def is_complete(state: Path) -> bool:
    """Return whether an installation with one data plane has written all its files."""
    files = {str(path.relative_to(state)) for path in state.rglob("*")}
    pods = [name for name in files if name.startswith("node/pods/") and name.count("/") == 2]
    expected = {f"{pod}/{name}" for pod in pods for name in POD_FILES}
    return len(pods) == 1 and files >= EXPECTED_FILES | expected


@pytest.mark.process
@pytest.mark.timeout(120)
async def test_no_file_of_a_running_installation_is_open_to_other_users(tmp_path: Path) -> None:
    # Short, since the agent moves its sockets elsewhere if their paths are long.
    state = open_directory(Path(tempfile.mkdtemp(prefix="gh-")) / "s")
    installation = Installation(state)
    installation.output = tmp_path / "up.log"
    installation.start()
    try:
        async with installation.client() as client:
            await apply(client, hello())
            await address(client)
        await until(functools.partial(asyncio.to_thread, is_complete, state))
        users = parse_range(DEFAULT_RANGE)
        assert users is not None
        for path in (state, *state.rglob("*")):
            if path.is_symlink() or path.name in PRIVATE_BY_DIRECTORY or not path.exists():
                continue
            # Volumes are readable by the group of the data plane, which has no other members.
            group = path.stat().st_gid in users.ids and path.stat().st_uid == 0
            program = any(path.match(f"node/pods/*/{name}") for name in PROGRAMS)
            expected = 0o700 if path.is_dir() or program else 0o600
            allowed = (0o050 if path.is_dir() else 0o040) if group else 0
            assert (path, mode(path)) == (path, expected | allowed)
    finally:
        installation.stop()
        shutil.rmtree(state.parent)


UNCHECKED_WRITES = {
    "agent/drained_file.py": "empties a file of the proxy, and keeps a position beside it",
    "agent/envoy/resource_store.py": "a database, which the helper checks before",
    "agent/error_log.py": "truncates a file of the proxy",
    "agent/nginx/binary.py": "a scratch directory",
    "cli/certs.py": "scratch directories, and the directory that the user names",
    "cli/check_proxies.py": "a scratch directory",
    "cli/console.py": "a scratch directory",
    "cli/dns.py": "a zone file, which name servers read",
    "cli/support.py": "a new private file, which the user names",
    "kube/config.py": "a scratch directory",
    "kube_api_server/http/audit.py": "a log, which the helper checks before",
    "kube_base/runtime/private_files.py": "the mechanism",
    "runtime/orphan_starter.py": "output of a program, with the mode of a private file",
    "runtime/watched_process.py": "output of a process, under the umask of the command",
    "runtime/confined_exec.py": "mount points in an empty file system of root",
    "standalone/node/log_index.py": "sizes of a log, under the umask of the command",
    "standalone/pki.py": "the directory of a certificate, which the user names",
    "transports/nginx_plus/client.py": "a scratch directory",
}
"""Modules that write files without the helper, and why."""


def test_every_module_writes_files_through_the_helper() -> None:
    writers = {
        source_trees.short_name(path)
        for path in source_trees.modules()
        if _writes(ast.parse(path.read_text()))
    }
    assert writers == UNCHECKED_WRITES.keys()


def _writes(tree: ast.Module) -> bool:
    if "O_CREAT" in ast.dump(tree):
        return True
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in ("write_text", "write_bytes", "mkdir"):
            return True
        if node.func.attr == "touch" and not node.args:
            return True
        modes = [a.value for a in node.args if isinstance(a, ast.Constant)]
        if node.func.attr == "open" and {"w", "a", "wb", "ab", "r+b", "x", "xb"} & {*modes}:
            return True
    return False
