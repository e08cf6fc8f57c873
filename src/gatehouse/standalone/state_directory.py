"""The state directory: what lies where, who holds it, and what was chosen once and for all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import yaml

from gatehouse.standalone import pki
from gatehouse.standalone.free_ports import free_port


class StateError(Exception):
    """The state directory cannot be used; the message says why."""


def default_directory(environ: Mapping[str, str]) -> Path:
    """Give the directory used when none is named (XDG Base Directory specification)."""
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "gatehouse"


class Chosen(msgspec.Struct):
    """Addresses picked at the first start and kept, so that agents and users find them again."""

    api: str = ""
    agent: str = ""


class State:
    """One installation's directory. Only one supervisor may hold it at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.pki = pki.Pki(self.directory / "pki")
        self._lock: int | None = None

    @property
    def kubeconfig(self) -> Path:
        """The user's kubeconfig, with all rights."""
        return self.directory / "kubeconfig"

    @property
    def controller_kubeconfig(self) -> Path:
        """The controller's."""
        return self.directory / "controller.kubeconfig"

    @property
    def node_kubeconfig(self) -> Path:
        """The node's."""
        return self.directory / "node.kubeconfig"

    @property
    def database(self) -> Path:
        """The API server's directory."""
        return self.directory / "apiserver"

    @property
    def node(self) -> Path:
        """The node's directory: data planes and their files."""
        return self.directory / "node"

    @property
    def run(self) -> Path:
        """Records of running processes."""
        return self.directory / "run"

    def hold(self) -> None:
        """Make the directory and take it; raises StateError if another supervisor has it."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.run.mkdir(exist_ok=True)
            self.node.mkdir(exist_ok=True)
            self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StateError(f"state directory {self.directory}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StateError(f"{self.directory} is in use by another `gatehouse up`") from error

    def addresses(self, api: str, agent: str) -> Chosen:
        """Settle the addresses: port 0 means "any", chosen at the first start and then kept."""
        path = self.directory / "addresses.json"
        kept = Chosen()
        if path.exists():
            kept = msgspec.json.decode(path.read_bytes(), type=Chosen)
        chosen = Chosen(api=_settle(api, kept.api), agent=_settle(agent, kept.agent))
        path.write_bytes(msgspec.json.encode(chosen))
        return chosen

    def write_kubeconfigs(self, server: str) -> None:
        """Write the kubeconfigs of user, controller and node for the API server at ``server``."""
        for path, leaf in (
            (self.kubeconfig, pki.ADMIN),
            (self.controller_kubeconfig, pki.CONTROLLER),
            (self.node_kubeconfig, pki.NODE),
        ):
            text = yaml.safe_dump(self._kubeconfig(server, leaf), sort_keys=False)
            staged = path.with_name(f".{path.name}")
            staged.touch(mode=0o600)
            staged.write_text(text, encoding="utf-8")
            staged.rename(path)

    def _kubeconfig(self, server: str, leaf: pki.Leaf) -> dict[str, object]:
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
    """Split ``host:port``; raises StateError if it is none."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise StateError(f"{address!r} is not of the form host:port")
    return host.strip("[]"), int(port)


def _settle(asked: str, kept: str) -> str:
    host, port = split_address(asked)
    if port:
        return asked
    if kept and split_address(kept)[0] == host:
        return kept
    return f"{asked.rpartition(':')[0]}:{free_port(host)}"
