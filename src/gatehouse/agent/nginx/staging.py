"""Creation of a configuration revision from stored contents, and its test by NGINX."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gatehouse.agent import system_trust
from gatehouse.agent.error_log import message
from gatehouse.agent.nginx import main_conf, master, seed_files
from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.paths import Paths
from gatehouse.agent.nginx.plus import state_files
from gatehouse.agent.nginx.revision_store import MAIN, SYSTEM_TRUST, RevisionStore
from gatehouse.dataplane.endpoints import Endpoints

TEST_SECONDS = 60.0
"""Timeout of `nginx -t` in seconds. With 5,000 servers it takes at most 2 s."""


class ApplyError(Exception):
    """A configuration cannot be applied."""


class RejectedError(ApplyError):
    """NGINX rejects a configuration."""


class Stager:
    """Creates revisions for one NGINX. Synchronous."""

    def __init__(
        self,
        binary: NginxBinary,
        paths: Paths,
        revisions: RevisionStore,
        workers: str,
        shutdown: int,
        *,
        strict: bool = False,
    ) -> None:
        """`strict`: reject configurations with warnings. `shutdown`: see `main_conf.render`."""
        self._binary = binary
        self._paths = paths
        self._revisions = revisions
        self._workers, self._shutdown, self._strict = workers, shutdown, strict

    def stage(self, manifest: Manifest, seeds: Mapping[str, Endpoints], nameserver: int) -> int:
        """Create a revision from stored contents and return its number. Raises OSError."""
        text = main_conf.render(
            self._binary,
            self._paths,
            manifest.version,
            {entry.path for entry in manifest.entries},
            shutdown=self._shutdown,
            workers=self._workers,
            # By default the workers of a root master run as another user, who cannot open the
            # temporary directories. A root user without capabilities is root of a sandbox.
            user="root" if os.geteuid() == 0 else "",
            nameserver=nameserver,
        )
        staged = Manifest(manifest.version, manifest.entries, nameserver=nameserver, seeds=seeds)
        own: dict[str, str | Path] = {MAIN: text, **seed_files.seed_files(seeds)}
        if ca_bundle := system_trust.bundle():
            own[SYSTEM_TRUST] = ca_bundle
        if self._binary.plus:
            own[state_files.DIRECTORY] = self._paths.states
        return self._revisions.stage(staged, own)

    def test(self, number: int) -> None:
        """Test a revision. Raises :class:`RejectedError`, or OSError if NGINX cannot be run."""
        conf = self._revisions.directory(number) / MAIN
        command = [*master.command(self._binary, self._paths, conf), "-t", "-q"]
        try:
            result = subprocess.run(
                command,
                capture_output=True,
                timeout=TEST_SECONDS,
                check=False,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise RejectedError(f"nginx -t did not finish within {TEST_SECONDS:g} s") from error
        if result.returncode != 0 or (self._strict and "[warn]" in result.stderr):
            messages = [message(line) for line in result.stderr.splitlines()]
            text = "; ".join(line for line in messages if line and "test failed" not in line)
            # Show paths as the control plane names them, without the directory of the revision.
            text = text.replace(f"{conf.parent}/", "")
            raise RejectedError(text or f"nginx -t exited with status {result.returncode}")
