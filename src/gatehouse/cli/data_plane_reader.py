"""Reader of data planes' configurations: from this machine, or by a command in their Pods."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gatehouse.cli.agent_config import COMMAND, DIGEST_KEY_OPTION
from gatehouse.cli.data_plane_files import StoredConfigurations, read_stored
from gatehouse.cli.secret_digest import SecretDigest
from gatehouse.kube import client as kube
from gatehouse.kube.pod_exec import CommandResult
from gatehouse.standalone.node import pods
from kube_base.runtime.printable import printable
from kube_base.types.objects import Object

_CONTAINERS = ("nginx", "envoy")
"""Names of the containers of agents."""

_MAX_MESSAGE_CHARACTERS = 300


class UnreadableError(Exception):
    """Raised if the configuration of a data plane cannot be read. The message says why."""


class DataPlaneReader:
    """Reads the configurations of data planes with the permissions of its user."""

    def __init__(self, client: kube.Client, node: Path) -> None:
        """``node``: directory of the node of this machine."""
        self._client = client
        self._node = node
        self._digest = SecretDigest.random()

    async def read(self, pod: Object) -> StoredConfigurations:
        """Return the configurations of a data plane. Raises UnreadableError."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        data = data_directory(self._node, namespace, name)
        try:
            stored = read_stored(data, self._digest)
        except OSError as error:
            raise UnreadableError(f"{namespace}/{name}: {error}") from error
        if stored is not None:
            return stored
        if data.is_dir():
            raise UnreadableError(f"{namespace}/{name} has no configuration below {data}")
        return await self._read_in_pod(pod, data)

    async def _read_in_pod(self, pod: Object, data: Path) -> StoredConfigurations:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        command = ("gatehouse", COMMAND, DIGEST_KEY_OPTION, self._digest.key)
        try:
            result = await self._client.exec_in_pod(namespace, name, proxy_container(pod), command)
        except kube.Forbidden as error:
            raise UnreadableError(
                f"{namespace}/{name}: {error}. The command needs the permission to get and create "
                f"pods/exec in namespace {namespace}"
            ) from error
        except kube.NotFound as error:
            # The API server of `gatehouse up` has no pods/exec.
            raise UnreadableError(
                f"{namespace}/{name} has no configuration below {data}, and no command can be run "
                f"in the Pod: {printable(str(error))}"
            ) from error
        except kube.ApiError as error:
            raise UnreadableError(f"{namespace}/{name}: {printable(str(error))}") from error
        return _stored(f"{namespace}/{name}", result)


def data_directory(node: Path, namespace: str, pod: str) -> Path:
    """Return the directory of the agent of a data plane on this machine."""
    return pods.directory(node, namespace, pod) / "volumes" / "data"


def proxy_container(pod: Object) -> str:
    """Return the name of the container that runs the agent and its proxy."""
    names = [str(container["name"]) for container in pod["spec"]["containers"]]
    return next((name for name in names if name in _CONTAINERS), names[0])


def _stored(label: str, result: CommandResult) -> StoredConfigurations:
    """Parse the output of the command. A Pod decides what it writes."""
    if result.exit_code:
        text = result.stderr.decode("utf-8", "replace").strip()[-_MAX_MESSAGE_CHARACTERS:]
        older = "; its version of Gatehouse is older" if "No such command" in text else ""
        reason = printable(text) or f"exit status {result.exit_code}"
        raise UnreadableError(f"{label}: gatehouse {COMMAND}: {reason}{older}")
    try:
        stored = msgspec.json.decode(result.stdout, type=StoredConfigurations)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{label}: invalid output of gatehouse {COMMAND}: {error}") from error
    previous = stored.previous.printable() if stored.previous is not None else None
    return StoredConfigurations(stored.served.printable(), previous)
