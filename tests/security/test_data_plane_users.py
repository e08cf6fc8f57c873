"""Data planes of `gatehouse up` that root started: an attacker runs code in a proxy or an agent.

The process must not read secrets of the installation or of another data plane, must not signal
their processes, and must have no privilege except for low ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.installation import PORT, Installation, apply, hello, holds
from fakes.patience import SECONDS, until
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.apis import resources
from gatehouse.apis.event_reasons import EventReason
from gatehouse.kube import client as kube
from gatehouse.runtime import confined_exec, procfs
from gatehouse.standalone.node import data_plane_users
from gatehouse.standalone.node.data_plane_users import DataPlaneUsers, UserRange, UserRangeError

NET_BIND_SERVICE = 1 << 10
LOW_PORT = 80

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("nsenter") and shutil.which("setpriv")),
    reason="needs root, nsenter and setpriv",
)

ATTACK = """
import json, os, sys

def attempt(action, target):
    try:
        return repr(action(target))
    except OSError as error:
        return type(error).__name__

def entries(path):
    return sorted(os.listdir(path))

def kill(pid):
    return os.kill(pid, 0)

def text(path):
    return open(path).read()

def create(path):
    return open(path, "x")

actions = {"read": text, "list": entries, "kill": kill, "create": create}
print(json.dumps([attempt(actions[name], target) for name, target in json.loads(sys.argv[1])]))
"""


def attack(pid: int, attempts: list[tuple[str, Any]], *, mounts: bool) -> list[str]:
    """Carry out attempts as the user of a process, and with its view of the file system or all."""
    user = status(pid)["Uid"].split()[0]
    entering = ["nsenter", "-t", str(pid), "-m"] if mounts else []
    # Its interpreter may be in a directory of root: the script gets that of the system's view.
    script = ["/usr/bin/env", "-i", sys.executable, "-I", "-c", ATTACK, json.dumps(attempts)]
    if mounts:
        setpriv = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs"]
        command = [*entering, *setpriv, *script]
    else:
        needed = [sys.prefix, sys.base_prefix]
        command = confined_exec.confined_command(int(user), needed, "/", script)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@contextlib.asynccontextmanager
async def running(installation: Installation) -> AsyncIterator[kube.Client]:
    installation.start()
    try:
        async with installation.client() as client:
            yield client
    finally:
        installation.stop()


@pytest.fixture
def state() -> Iterator[Path]:
    # Short, for the sake of Unix sockets, and in a directory that only root may enter.
    directory = Path(tempfile.mkdtemp(prefix="gh-"))
    (directory / "s").mkdir(mode=0o700)
    yield directory / "s"
    shutil.rmtree(directory)


def agents(installation: Installation) -> dict[str, int]:
    """Return the pid of each agent by its proxy."""
    result = {}
    for path in installation.state.glob("node/pods/*/process.json"):
        pid = json.loads(path.read_bytes())["pid"]
        result["envoy" if "--proxy envoy" in procfs.command_line(pid) else "nginx"] = pid
    return result


def family(agent: int) -> frozenset[int]:
    """Return an agent and its processes. NGINX is no child of it, but has the same user."""
    user = Path(f"/proc/{agent}").stat().st_uid
    pids = {int(path.name) for path in Path("/proc").glob("[0-9]*") if path.stat().st_uid == user}
    return frozenset(filter(procfs.is_alive, pids))


def gateway(proxy: str) -> list[dict[str, Any]]:
    """Return the objects of `hello` with a Gateway of one proxy, and with a low port."""
    manifests: list[dict[str, Any]] = json.loads(
        json.dumps(hello(f"gatehouse-{proxy}")).replace('"web"', f'"{proxy}"')
    )
    for manifest in manifests:
        if manifest["kind"] == "Gateway":
            listener = manifest["spec"]["listeners"][0]
            manifest["spec"]["listeners"].append({**listener, "name": "low", "port": LOW_PORT})
        if manifest["kind"] == "HTTPRoute":
            manifest["metadata"]["name"] += f"-{proxy}"
    return manifests


async def serving(client: kube.Client, proxy: str) -> str:
    """Wait until a Gateway is programmed and accepts connections. Return its address."""
    programmed = await holds(client, "Gateway", proxy, "Programmed")
    address = str(programmed["addresses"][0]["value"])

    async def connected() -> bool:
        for port in (PORT, LOW_PORT):
            try:
                _, writer = await asyncio.open_connection(address, port)
            except OSError:
                return False
            writer.close()
        return True

    await until(connected)
    return address


@needs_root
@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(180)
async def test_data_plane_has_no_rights_beyond_its_own_and_survives_the_node(state: Path) -> None:
    installation = Installation(state)
    async with running(installation) as client:
        for proxy in ("nginx", "envoy"):
            await apply(client, gateway(proxy))
        addresses = {proxy: await serving(client, proxy) for proxy in ("nginx", "envoy")}
        pids = agents(installation)
        users = {proxy: status(pid)["Uid"].split()[0] for proxy, pid in pids.items()}
        assert len({*users.values(), "0"}) == 3
        for proxy, pid in pids.items():
            assert len(family(pid)) > 1
            for member in family(pid):
                assert_unprivileged(member, users[proxy])
            assert_confined(installation, pid, next(p for p in pids.values() if p != pid))
        await assert_survives_the_node(installation, pids)
        for proxy in addresses:
            assert await serving(client, proxy) == addresses[proxy]
        assert agents(installation) == pids
        await assert_kill_of_master_refuses_nothing(pids["nginx"], addresses["nginx"])


def assert_unprivileged(pid: int, user: str) -> None:
    current = status(pid)
    assert set(current["Uid"].split()) | set(current["Gid"].split()) == {user}
    assert current["Groups"] == ""
    assert current["NoNewPrivs"] == "1"
    for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh"):
        assert int(current[name], 16) == NET_BIND_SERVICE, (name, procfs.command_line(pid))


def assert_confined(installation: Installation, pid: int, other: int) -> None:
    state = installation.state
    record = next(p for p in state.glob("node/pods/*/process.json") if str(pid) in p.read_text())
    own = record.parent
    (foreign,) = (path for path in state.glob("node/pods/*") if path != own)
    secrets = [
        *(state / "pki" / name for name in ("ca.key", "tokens.key", "admin.key")),
        *(state / name for name in ("apiserver/gatehouse.db", "kubeconfig", "node.kubeconfig")),
        *(foreign / "volumes" / name for name in ("token/token", "ca/ca.crt")),
        *(record, own / "user", Path(f"/proc/{other}/environ")),
    ]
    assert all(path.exists() for path in secrets)
    controller = installation.part("controller").pid
    attempts: list[tuple[str, Any]] = [("read", str(path)) for path in secrets]
    attempts += [("kill", target) for target in (controller, other, *family(other))]
    # The node writes into these directories, so that a link in them would lead it elsewhere.
    attempts += [("create", str(own / "volumes" / name)) for name in ("new", "token/new", "ca/new")]
    directories = [("list", str(path)) for path in (foreign, foreign / "volumes", state / "pki")]
    for mounts in (True, False):
        results = attack(pid, attempts + directories, mounts=mounts)
        assert set(results) <= {"PermissionError", "FileNotFoundError"}, results
    token = ("read", str(own / "volumes" / "token" / "token"))
    assert "Error" not in attack(pid, [token], mounts=True)[0]
    listings = attack(
        pid, [("list", str(path)) for path in (state, state / "node/pods")], mounts=True
    )
    assert listings == [repr(["node"]), repr([own.name])]
    assert attack(pid, [("list", str(state))], mounts=False) == ["PermissionError"]


async def assert_kill_of_master_refuses_nothing(agent: int, address: str) -> None:
    """The agent holds the listening sockets of its NGINX although it is not root."""

    def find_master() -> int:
        user = Path(f"/proc/{agent}").stat().st_uid
        for pid, words in procfs.running(("nginx",)):
            if words[:2] == ["nginx:", "master"] and Path(f"/proc/{pid}").stat().st_uid == user:
                return pid
        return 0

    master = find_master()
    assert procfs.sockets(agent).keys() & procfs.sockets(master).keys()
    os.kill(master, signal.SIGKILL)
    while find_master() in (0, master):
        for port in (PORT, LOW_PORT):
            _, writer = await asyncio.open_connection(address, port)
            writer.close()


async def assert_survives_the_node(installation: Installation, pids: dict[str, int]) -> None:
    """Kill the node, which its supervisor replaces, and then all of the control plane."""
    before = installation.part("node").pid
    os.kill(before, signal.SIGKILL)

    async def replaced() -> bool:
        with contextlib.suppress(AssertionError):
            return installation.part("node").pid != before
        return False

    await until(replaced)
    assert installation.process is not None
    installation.process.kill()
    installation.process.wait()
    installation.start()
    await until(replaced)
    adopted = installation.output.read_text().count("process adopted")

    async def adopted_again() -> bool:
        return installation.output.read_text().count("process adopted") >= max(adopted, len(pids))

    await until(adopted_again)


@needs_root
@pytest.mark.process
@pytest.mark.timeout(120)
@pytest.mark.parametrize("cause", ["closed program", "no mounts"])
async def test_data_plane_that_cannot_have_a_user_runs_as_root_with_a_warning(
    state: Path, tmp_path: Path, cause: str
) -> None:
    program = tmp_path / "nginx"
    shutil.copy(nginx_binary.find_nginx_binary(os.environ.get("GATEHOUSE_TEST_NGINX")), program)
    program.chmod(0o700 if cause == "closed program" else 0o755)
    installation = Installation(state, "--nginx", str(program))
    if cause == "no mounts":
        # As in most containers.
        without = ("setpriv", "--bounding-set", "-sys_admin")
        installation.command = (*without, *installation.command)
    async with running(installation) as client:
        await apply(client, gateway("nginx"))
        await serving(client, "nginx")
        assert users(installation) == ["0"]
        message = (await privileged_event(client))["message"]
        failed, error = {
            "closed program": (str(program), "Permission denied"),
            "no mounts": (sys.executable, "CAP_SYS_ADMIN is needed"),
        }[cause]
        assert message.startswith(f"runs as root: {failed} cannot run as another user: ")
        assert error in message


async def privileged_event(client: kube.Client) -> dict[str, Any]:
    async def find() -> Any:
        events = (await client.list(resources.EVENTS)).items
        return next(
            (event for event in events if event.get("reason") == EventReason.DATA_PLANE_PRIVILEGED),
            None,
        )

    return dict(await until(find))


@needs_root
@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(180)
async def test_data_plane_of_an_earlier_version_serves_as_root_until_its_pod_is_deleted(
    state: Path,
) -> None:
    installation = Installation(state, "--data-plane-users", "none")
    installation.start()
    async with installation.client() as client:
        await apply(client, gateway("nginx"))
        await serving(client, "nginx")
    before = agents(installation)
    assert status(before["nginx"])["Uid"].split()[0] == "0"
    assert installation.process is not None
    installation.process.send_signal(signal.SIGUSR2)
    installation.process.wait(SECONDS)
    forget_users(state)
    async with running(Installation(state)) as client:
        event = await privileged_event(client)
        assert "delete the Pod" in event["message"]
        assert agents(installation) == before
        involved = event["involvedObject"]
        await client.delete(resources.PODS, involved["name"], namespace=involved["namespace"])

        async def replaced() -> bool:
            return users(installation) not in ([], ["0"])

        await until(replaced)
        await serving(client, "nginx")


def forget_users(state: Path) -> None:
    """Remove the files that earlier versions do not have."""
    for path in state.glob(f"node/pods/*/{data_plane_users.USER}"):
        path.unlink()


def users(installation: Installation) -> list[str]:
    """Return the users of the running agents."""
    running = [pid for pid in agents(installation).values() if procfs.is_alive(pid)]
    return [status(pid)["Uid"].split()[0] for pid in running]


# Users and the namespace of mounts.


@pytest.mark.parametrize("text", ["", "x", "1", "0-5", "7-6", "-1-4", "1-4294967295"])
def test_invalid_range_is_rejected(text: str) -> None:
    with pytest.raises(UserRangeError, match="is not of the form FIRST-LAST"):
        data_plane_users.parse_range(text)


def test_users_are_distinct_stay_and_run_out(tmp_path: Path) -> None:
    users = DataPlaneUsers(UserRange(70000, 70002), tmp_path, Path("nginx"))
    pods = [tmp_path / "pods" / name for name in "abcd"]
    for pod in pods:
        pod.mkdir(parents=True)
    users_of_pods = [users.user_of(pod) for pod in pods[:3]]
    assert sorted(users_of_pods) == [70000, 70001, 70002]
    with pytest.raises(UserRangeError, match="no free user ID in 70000-70002"):
        users.user_of(pods[3])
    again = DataPlaneUsers(None, tmp_path, Path("nginx"))
    assert [again.user_of(pod) for pod in pods[:3]] == users_of_pods
    assert again.user_of(pods[3]) == 0


def test_user_with_a_name_is_not_allocated(tmp_path: Path) -> None:
    pod = tmp_path / "pods" / "a"
    pod.mkdir(parents=True)
    # The only user ID of the range already belongs to a user of the machine.
    with pytest.raises(UserRangeError):
        DataPlaneUsers(UserRange(65534, 65534), tmp_path, Path("nginx")).user_of(pod)


@needs_root
def test_user_of_a_running_process_is_not_allocated(tmp_path: Path) -> None:
    pod = tmp_path / "pods" / "a"
    pod.mkdir(parents=True)
    allocating = DataPlaneUsers(UserRange(70000, 70000), tmp_path, Path("nginx"))
    with subprocess.Popen(["sleep", "60"], user=70000) as other:
        # Of another installation.
        with pytest.raises(UserRangeError):
            allocating.user_of(pod)
        other.kill()
    assert allocating.user_of(pod) == 70000


@needs_root
def test_only_needed_paths_of_a_closed_directory_are_visible(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    for name in ("needed/below", "own", "other"):
        (closed / name).mkdir(parents=True)
        (closed / name / "file").write_text(name)
    closed.chmod(0o700)
    (closed / "needed" / "below").chmod(0o700)
    os.chown(closed / "own", 60800, 60800)
    script = "cat needed/below/file own/file; cat other/file; touch own/new needed/new; ls ."
    program = ["sh", "-c", f"umask 022; cd {closed}; {script}"]
    needed = [str(closed / "needed"), str(closed / "needed" / "below")]
    command = confined_exec.confined_command(60800, needed, str(closed / "own"), program)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "ownneeded\nown\n"
    for words in ("needed/below/file: Permission denied", "other/file: No such file"):
        assert words in done.stderr
    assert (closed / "own" / "new").exists()
    assert not (closed / "needed" / "new").exists()
    assert sorted(path.name for path in closed.iterdir()) == ["needed", "other", "own"]


@needs_root
def test_program_that_cannot_run_is_named(tmp_path: Path) -> None:
    command = confined_exec.confined_command(60800, [], str(tmp_path), [str(tmp_path / "absent")])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 126
    assert f"gatehouse: {tmp_path}/absent as user 60800: " in done.stderr
