"""Where the agent's and NGINX's files are."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec

from gatehouse.agent import run_directory, secure_files
from gatehouse.agent.nginx.plus import state_files

TEMP_KINDS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
"""NGINX's temporary directories; every one must be set where its own are not writable."""


class Places(msgspec.Struct, frozen=True):
    """Paths under the two directories that the agent is given."""

    root: Path
    run: Path

    @property
    def main_conf(self) -> Path:
        """What NGINX is started with; leads through the link that is swapped."""
        return self.root / "current" / "nginx.conf"

    @property
    def pid(self) -> Path:
        """The master's pid file."""
        return self.run / "nginx.pid"

    @property
    def error_log(self) -> Path:
        """NGINX's messages: a file, since a pipe would die with the agent."""
        return self.run / "error.log"

    @property
    def version_socket(self) -> Path:
        """Where the workers tell which version they serve."""
        return self.run / "version.sock"

    @property
    def api_socket(self) -> Path:
        """Where NGINX Plus has its API; in a directory that nobody else may enter."""
        return self.run / "api" / "plus.sock"

    @property
    def states(self) -> Path:
        """Where NGINX Plus keeps the servers of upstreams."""
        return self.root / state_files.DIRECTORY

    def temp(self, kind: str) -> Path:
        """One of NGINX's temporary directories."""
        return self.run / "temp" / kind

    def prepare(self) -> None:
        """Make the directories; raises OSError."""
        for path in (self.root, self.run, self.run / "temp"):
            secure_files.make_private_dir(path)

    def prepare_plus(self) -> None:
        """Make the directories that only NGINX Plus needs; raises OSError."""
        secure_files.make_private_dir(self.api_socket.parent)
        secure_files.make_private_dir(self.states)

    def remove_sockets(self) -> None:
        """Remove sockets a killed NGINX left: those that nobody listens on any more."""
        for path in (*self.run.iterdir(), self.api_socket):
            if path.is_socket() and _abandoned(path):
                path.unlink(missing_ok=True)


def _abandoned(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def of(root: Path, run_dir: Path) -> Places:
    """Give the places, with a short stand-in for a run directory too long for sockets."""
    return Places(root, run_directory.short(run_dir))
