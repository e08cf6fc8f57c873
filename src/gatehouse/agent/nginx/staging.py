"""A generation that is to be served: made of what is in the store, and tested by NGINX itself."""

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
from gatehouse.agent.nginx.paths import Places
from gatehouse.agent.nginx.plus import state_files
from gatehouse.agent.nginx.revision_store import MAIN, SYSTEM_TRUST, RevisionStore
from gatehouse.dataplane.endpoints import Endpoints

TEST_SECONDS = 60.0
"""``nginx -t`` of 5,000 servers takes 2 s at most; beyond this it waits for something."""


class ApplyError(Exception):
    """The configuration cannot be had or is not accepted; in NGINX's own words if it spoke."""


class Stager:
    """Makes generations for one NGINX. Synchronous."""

    def __init__(
        self,
        binary: NginxBinary,
        places: Places,
        generations: RevisionStore,
        workers: str,
        shutdown: int,
        *,
        strict: bool = False,
    ) -> None:
        """``strict``: what NGINX warns of is refused as well. ``shutdown``: see the main file."""
        self._binary = binary
        self._places = places
        self._generations = generations
        self._workers, self._shutdown, self._strict = workers, shutdown, strict

    def make(self, manifest: Manifest, seeds: Mapping[str, Endpoints], nameserver: int) -> int:
        """Make a generation of what is in the store; returns its number. Raises OSError."""
        text = main_conf.render(
            self._binary,
            self._places,
            manifest.version,
            {entry.path for entry in manifest.entries},
            shutdown=self._shutdown,
            workers=self._workers,
            # Else the workers of a root master would become "nobody", who may not open the
            # temporary directories; a root without capabilities is a sandbox's root.
            user="root" if os.geteuid() == 0 else "",
            nameserver=nameserver,
        )
        made = Manifest(manifest.version, manifest.entries, nameserver=nameserver, seeds=seeds)
        own: dict[str, str | Path] = {MAIN: text, **seed_files.seed_files(seeds)}
        if trusted := system_trust.bundle():
            own[SYSTEM_TRUST] = trusted
        if self._binary.plus:
            own[state_files.DIRECTORY] = self._places.states
        return self._generations.stage(made, own)

    def test(self, number: int) -> None:
        """Test a generation; raises :class:`ApplyError`, or OSError if NGINX cannot be run."""
        conf = self._generations.directory(number) / MAIN
        command = [*master.command(self._binary, self._places, conf), "-t", "-q"]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                timeout=TEST_SECONDS,
                check=False,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise ApplyError(f"nginx -t took more than {TEST_SECONDS:g} s") from error
        if done.returncode != 0 or (self._strict and "[warn]" in done.stderr):
            said = [message(line) for line in done.stderr.splitlines()]
            text = "; ".join(line for line in said if line and "test failed" not in line)
            # Paths as the control plane knows them, not where this agent keeps generations.
            text = text.replace(f"{conf.parent}/", "")
            raise ApplyError(text or f"nginx -t ended with status {done.returncode}")
