"""File system layout of the NGINX agent and its NGINX."""

from __future__ import annotations

import socket
from pathlib import Path

from gatehouse.agent import run_directory
from gatehouse.agent.agent_paths import AgentPaths
from gatehouse.agent.nginx.plus import state_files
from kube_base.runtime import private_files

TEMP_KINDS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
"""NGINX's temporary directories. All must be set because the built-in paths may not be writable."""


class NginxPaths(AgentPaths, frozen=True):
    """Paths of NGINX and its agent."""

    @property
    def main_conf(self) -> Path:
        """Main configuration file. The path leads through the link to the current revision."""
        return self.root / "current" / "nginx.conf"

    @property
    def pid(self) -> Path:
        """PID file of the master."""
        return self.run / "nginx.pid"

    @property
    def old_pid(self) -> Path:
        """PID file of the master during a hand-over of its sockets."""
        return self.run / "nginx.pid.oldbin"

    @property
    def handover_socket(self) -> Path:
        """Socket on which the agent receives NGINX's listening sockets."""
        return self.run / "handover.sock"

    @property
    def senders(self) -> tuple[Path, ...]:
        """Possible places of the script that sends the sockets. `/run` may forbid execution."""
        return self.run / "nginx", self.root / "nginx"

    @property
    def error_log(self) -> Path:
        """Error log of NGINX. A file, because a pipe would break when the agent dies."""
        return self.run / "error.log"

    @property
    def version_socket(self) -> Path:
        """Socket on which the workers report the version they serve."""
        return self.run / "version.sock"

    @property
    def api_socket(self) -> Path:
        """Socket of the NGINX Plus API, in a directory that only its owner may enter."""
        return self.run / "api" / "plus.sock"

    @property
    def states(self) -> Path:
        """Directory of the upstream state files of NGINX Plus."""
        return self.root / state_files.DIRECTORY

    def temp(self, kind: str) -> Path:
        """Return one of NGINX's temporary directories."""
        return self.run / "temp" / kind

    def prepare(self) -> None:
        """Create the directories. Raises OSError."""
        for path in (self.root, self.run, self.run / "temp"):
            private_files.make_private_dir(path)

    def prepare_plus(self) -> None:
        """Create the directories that only NGINX Plus needs. Raises OSError."""
        private_files.make_private_dir(self.api_socket.parent)
        private_files.make_private_dir(self.states)

    def remove_sockets(self) -> None:
        """Remove sockets that a killed NGINX left and that have no listener."""
        for path in (*self.run.iterdir(), self.api_socket):
            if path.is_socket() and _has_no_listener(path):
                path.unlink(missing_ok=True)


def _has_no_listener(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def nginx_paths(root: Path, run_dir: Path) -> NginxPaths:
    """Return the paths, with a short substitute for a run directory too long for sockets."""
    return NginxPaths(root, run_directory.short_path(run_dir))
