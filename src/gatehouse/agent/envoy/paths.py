"""File system layout of the Envoy agent and its Envoy."""

from __future__ import annotations

from pathlib import Path

from gatehouse.agent import run_directory, system_trust
from gatehouse.agent.agent_paths import AgentPaths
from kube_base.runtime import private_files


class EnvoyPaths(AgentPaths, frozen=True):
    """Paths of Envoy and its agent."""

    @property
    def store(self) -> Path:
        """Database of the resources that Envoy accepted."""
        return self.root / "envoy.db"

    @property
    def private(self) -> Path:
        """Private directory: every client of its sockets is trusted as Envoy or as its owner."""
        return self.run / "envoy"

    @property
    def bootstrap(self) -> Path:
        """Bootstrap configuration of Envoy."""
        return self.private / "bootstrap.json"

    @property
    def relay(self) -> Path:
        """Socket on which the relay listens."""
        return self.private / "relay.sock"

    @property
    def admin(self) -> Path:
        """Socket of Envoy's admin interface."""
        return self.private / "admin.sock"

    @property
    def probe(self) -> Path:
        """Socket of the listener for the agent's probes."""
        return self.private / "probe.sock"

    @property
    def sidecar_configs(self) -> Path:
        """Directory of sidecar configurations, which may contain secrets."""
        return self.private / "companions"

    @property
    def log(self) -> Path:
        """Log of Envoy. A file, because a pipe would break when the agent dies."""
        return self.run / "envoy.log"

    @property
    def system_trust(self) -> Path:
        """Link to the CA certificates of the system, with a name that resources can use."""
        return self.run / "system.pem"

    def prepare(self) -> None:
        """Create the directories and the link. Raises OSError."""
        for path in (self.root, self.run, self.private):
            private_files.make_private_dir(path)
        self.relay.unlink(missing_ok=True)
        self.system_trust.unlink(missing_ok=True)
        if ca_bundle := system_trust.system_bundle():
            self.system_trust.symlink_to(ca_bundle)


def envoy_paths(root: Path, run_dir: Path) -> EnvoyPaths:
    """Return the paths, with a short substitute for a run directory too long for sockets."""
    return EnvoyPaths(root, run_directory.short_path(run_dir))
