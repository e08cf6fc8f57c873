"""The state directory of an installation: paths, lock and persistent addresses."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Container, Mapping
from pathlib import Path

import msgspec
import structlog
import yaml

from gatehouse.standalone import pki, process_records
from gatehouse.standalone.free_ports import free_port, is_free
from kube_base.runtime import private_files

log = structlog.get_logger("gatehouse.up")


class StateError(Exception):
    """Raised if the state directory cannot be used; the message names the error."""


def default_directory(environ: Mapping[str, str]) -> Path:
    """Return the default directory (XDG Base Directory specification)."""
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "gatehouse"


class Addresses(msgspec.Struct):
    """Addresses selected at the first start, which stay the same for agents and users."""

    api: str = ""
    agent: str = ""
    health: str = ""
    """Health and metrics of the controller; empty: not served."""


class State:
    """Directory of one installation. Only one supervisor may lock it at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.pki = pki.Pki(self.directory / "pki")
        self._lock = contextlib.ExitStack()

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the user, with all permissions."""
        return self.directory / "kubeconfig"

    @property
    def controller_kubeconfig(self) -> Path:
        """Kubeconfig of the controller."""
        return self.directory / "controller.kubeconfig"

    @property
    def node_kubeconfig(self) -> Path:
        """Kubeconfig of the node."""
        return self.directory / "node.kubeconfig"

    @property
    def database(self) -> Path:
        """Directory of the API server."""
        return self.directory / "apiserver"

    @property
    def node(self) -> Path:
        """Directory of the node: data planes and their files."""
        return self.directory / "node"

    @property
    def run(self) -> Path:
        """Records of running processes."""
        return self.directory / "run"

    def acquire(self, groups: Container[int] = ()) -> None:
        """Create and lock the directory. Raises StateError if it is locked or cannot be used.

        ``groups``: groups of data planes, whose files they can still read.
        """
        try:
            if private_files.make_private_dir(
                self.directory, marker="pki", tree=True, groups=groups
            ):
                log.warning("state was readable by other users", directory=str(self.directory))
            for directory in (self.run, self.node):
                private_files.make_private_dir(directory)
            self._lock.enter_context(private_files.locked(self.directory / "lock"))
        except private_files.LockedError as error:
            raise StateError(f"{self.directory} is in use by another `gatehouse up`") from error
        except OSError as error:
            reason = error.strerror or error
            raise StateError(f"state directory {self.directory}: {reason}") from error

    @property
    def addresses_file(self) -> Path:
        """File with the addresses in use."""
        return self.directory / "addresses.json"

    def stored_addresses(self) -> Addresses:
        """Return the addresses of the last start; empty before the first."""
        if not self.addresses_file.exists():
            return Addresses()
        return msgspec.json.decode(self.addresses_file.read_bytes(), type=Addresses)

    def addresses(self, api: str, agent: str, health: str = "") -> Addresses:
        """Return the addresses to use.

        For port 0 the first start selects a port. Later ones keep it unless another program uses
        it. Processes of this installation that still run are no other program.
        """
        stored = self.stored_addresses()
        own = any(map(process_records.recorded, self.run.glob("*.json")))
        with_port = functools.partial(_with_port, own=own)
        addresses = Addresses(
            api=with_port("--api-address", api, stored.api),
            agent=with_port("--agent-address", agent, stored.agent),
            health=with_port("--health-bind-address", health, stored.health) if health else "",
        )
        private_files.replace_private_file(self.addresses_file, msgspec.json.encode(addresses))
        return addresses

    def write_kubeconfigs(self, server: str) -> None:
        """Write the kubeconfigs of user, controller and node for the API server at ``server``."""
        for path, leaf in (
            (self.kubeconfig, pki.ADMIN),
            (self.controller_kubeconfig, pki.CONTROLLER_CERTIFICATE),
            (self.node_kubeconfig, pki.NODE_CERTIFICATE),
        ):
            text = yaml.dump(
                self._kubeconfig(server, leaf), sort_keys=False, Dumper=yaml.CSafeDumper
            )
            private_files.replace_private_file(path, text.encode())

    def _kubeconfig(self, server: str, leaf: pki.InstallationCertificate) -> dict[str, object]:
        pair = self.pki.leaf(leaf)
        cluster = {"server": server, "certificate-authority": str(self.pki.ca().cert)}
        user = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
        context = {"cluster": "gatehouse", "user": leaf.name, "namespace": "default"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "gatehouse", "cluster": cluster}],
            "users": [{"name": leaf.name, "user": user}],
            "contexts": [{"name": "gatehouse", "context": context}],
            "current-context": "gatehouse",
        }


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``. Raises StateError if the format is invalid."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise StateError(f"{address!r} is not of the form host:port")
    return host.strip("[]"), int(port)


def _with_port(option: str, requested: str, stored: str, own: bool) -> str:
    """Return an address with a port. Raises StateError.

    ``own``: processes of this installation may listen on the stored address.
    """
    try:
        host, port = split_address(requested)
        if port:
            return requested
        if stored:
            last_host, last_port = split_address(stored)
            if last_host == host and (own or is_free(host, last_port)):
                return stored
        return f"{requested.rpartition(':')[0]}:{free_port(host)}"
    except StateError as error:
        raise StateError(f"{option}: {error}") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StateError(f"{option} {requested}: {reason}") from error
