"""Where the agent's and Envoy's files are."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gatehouse.agent import run_directory, secure_files, system_trust


class Places(msgspec.Struct, frozen=True):
    """Paths under the two directories that the agent is given."""

    root: Path
    run: Path

    @property
    def kept(self) -> Path:
        """What Envoy took last."""
        return self.root / "envoy.db"

    @property
    def own(self) -> Path:
        """For nobody else: whoever connects there is taken for Envoy, or for its owner."""
        return self.run / "envoy"

    @property
    def bootstrap(self) -> Path:
        """What Envoy is started with."""
        return self.own / "bootstrap.json"

    @property
    def relay(self) -> Path:
        """The socket on which the relay listens."""
        return self.own / "relay.sock"

    @property
    def admin(self) -> Path:
        """The socket of Envoy's administration."""
        return self.own / "admin.sock"

    @property
    def described(self) -> Path:
        """What companions are told; they may hold secrets."""
        return self.own / "companions"

    @property
    def log(self) -> Path:
        """Envoy's messages: a file, since a pipe would die with the agent."""
        return self.run / "envoy.log"

    @property
    def system_trust(self) -> Path:
        """The authorities that this machine trusts, by a name that resources can have."""
        return self.run / "system.pem"

    def prepare(self) -> None:
        """Make the directories; raises OSError."""
        for path in (self.root, self.run, self.own):
            secure_files.make_private_dir(path)
        self.relay.unlink(missing_ok=True)
        self.system_trust.unlink(missing_ok=True)
        if trusted := system_trust.bundle():
            self.system_trust.symlink_to(trusted)


def of(root: Path, run_dir: Path) -> Places:
    """Give the places, with a short stand-in for a run directory too long for sockets."""
    return Places(root, run_directory.short(run_dir))
