"""Creation of a configuration revision from stored contents, and its test by NGINX."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from gatehouse.agent import system_trust
from gatehouse.agent.error_log import emergency_messages, message
from gatehouse.agent.nginx import changed_part, existing_main, main_conf, master, seed_files
from gatehouse.agent.nginx.apply_errors import ApplyError, RejectedError, UnfinishedTestError
from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.paths import NginxPaths
from gatehouse.agent.nginx.plus import state_files
from gatehouse.agent.nginx.revision_store import MAIN, SYSTEM_TRUST, RevisionStore
from gatehouse.agent.options import CONFIG_DIR
from gatehouse.dataplane.endpoints import Endpoints
from kube_base.runtime.time_limits import scaled

log = structlog.get_logger("gatehouse.agent")

TEST_SECONDS = scaled(60.0)
"""Timeout of `nginx -t` in seconds. With 5,000 servers it takes at most 2 s."""

_RETRY_SECONDS = (0.5, 1.0, 2.0)
"""Delays before a test is repeated that a lack of resources has ended."""

_EXHAUSTED = re.compile(r"failed \((?:12|23|24|28): [\w ]+\)(?: in \S+)?$")
"""End of NGINX's messages about a lack of memory, files or space on the disk."""


class Stager:
    """Creates revisions for one NGINX. Synchronous."""

    def __init__(
        self,
        binary: NginxBinary,
        paths: NginxPaths,
        revisions: RevisionStore,
        workers: str,
        shutdown: int,
        *,
        strict: bool = False,
    ) -> None:
        """`strict`: reject configurations with warnings.

        `shutdown`: see `main_conf.render_main_conf`.
        """
        self._binary = binary
        self._paths = paths
        self._revisions = revisions
        self._workers, self._shutdown, self._strict = workers, shutdown, strict
        self._unfinished = ""
        """Version whose last test had no result; empty if the last test had one."""

    def stage(self, manifest: Manifest, seeds: Mapping[str, Endpoints], nameserver: int) -> int:
        """Create a revision from stored contents and return its number.

        Raises OSError, or ApplyError if NGINX would not read the files.
        """
        staged = msgspec.structs.replace(manifest, loaded="", nameserver=nameserver, seeds=seeds)
        own: dict[str, str | Path] = {**self._config_files(staged), **seed_files.seed_files(seeds)}
        if ca_bundle := system_trust.system_bundle():
            own[SYSTEM_TRUST] = ca_bundle
        if self._binary.plus:
            own[state_files.DIRECTORY] = self._paths.states
        return self._revisions.stage(staged, own)

    def _config_files(self, manifest: Manifest) -> dict[str, str | Path]:
        """Return the main file, and files that it needs and that are not stored as they must be."""
        # By default the workers of a root master run as another user, who cannot open the
        # temporary directories. A root user without capabilities is root of a sandbox.
        user = "root" if os.geteuid() == 0 else ""
        files = {entry.path for entry in manifest.entries}
        if MAIN in manifest.unmanaged:
            process = main_conf.process_lines(
                self._paths, shutdown=self._shutdown, workers=self._workers, user=user
            )
            http = main_conf.agent_http_lines(self._binary, self._paths, manifest.version)
            return existing_main.config_files(manifest, self._revisions.content, process, http)
        if unread := sorted(path for path in files if not path.startswith("gatehouse/")):
            raise ApplyError(
                f"{CONFIG_DIR}/{unread[0]}: NGINX would not read it, because the file overview "
                f"does not list {CONFIG_DIR}/{MAIN} as unmanaged"
            )
        text = main_conf.render_main_conf(
            self._binary,
            self._paths,
            manifest.version,
            files,
            shutdown=self._shutdown,
            workers=self._workers,
            user=user,
            nameserver=manifest.nameserver,
        )
        return {MAIN: text}

    def test_change(self, number: int, loaded: int) -> bool:
        """Test what differs between a revision and the one that NGINX has loaded.

        Return False if only a test of the whole revision can tell whether NGINX accepts it.
        """
        if self._strict:
            return False
        manifests = (self._revisions.manifest(revision) for revision in (loaded, number))
        directory = self._revisions.test_directory
        try:
            part = changed_part.changed_part(*manifests)
            changed_part.write_part(self._revisions.directory(number), part, directory)
            self._run(directory / MAIN, "-t", "-q")
        except (ApplyError, OSError, changed_part.WideChangeError) as error:
            log.debug("whole configuration tested", reason=str(error))
            return False
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return True

    def test(self, number: int) -> None:
        """Test a revision. Raises :class:`RejectedError`, or OSError if NGINX cannot be run.

        Raises ApplyError if the main file of the data plane does not include all files, and
        UnfinishedTestError without a result. A version whose next test has no result either is
        rejected: its content may be the cause, and other changes must not wait for it.
        """
        manifest = self._revisions.manifest(number)
        unfinished, self._unfinished = self._unfinished, ""
        try:
            self._test(self._revisions.directory(number), manifest)
        except UnfinishedTestError as error:
            self._unfinished = manifest.version
            if unfinished == manifest.version:
                raise RejectedError(str(error)) from error
            raise

    def _test(self, directory: Path, manifest: Manifest) -> None:
        if MAIN not in manifest.unmanaged:
            self._run(directory / MAIN, "-t", "-q")
            return
        dump = self._run(directory / MAIN, "-T", "-q")
        paths = {entry.path for entry in manifest.entries}
        if unread := existing_main.unread_files(dump, str(directory), paths):
            raise ApplyError(
                f"{CONFIG_DIR}/{unread[0]}: not read by NGINX, because {CONFIG_DIR}/{MAIN} of the "
                "data plane does not include it"
            )

    def _run(self, conf: Path, *arguments: str) -> str:
        """Run NGINX and return its output. Raises as `test`."""
        for seconds in (*_RETRY_SECONDS, None):
            result = self._test_once(conf, *arguments)
            lines = result.stderr.splitlines()
            messages = emergency_messages(lines) or [message(line) for line in lines]
            # Show paths as the control plane names them, without the directory of the revision.
            text = "; ".join(line for line in messages if line and "test failed" not in line)
            text = text.replace(f"{conf.parent}/", "")
            if not (result.returncode < 0 or (result.returncode and _EXHAUSTED.search(text))):
                break
            if seconds is not None:
                time.sleep(seconds)
        if result.returncode < 0:
            # Another process ended it, such as the kernel for lack of memory.
            raise UnfinishedTestError(f"nginx -t was ended by signal {-result.returncode}")
        if result.returncode or (self._strict and "[warn]" in result.stderr):
            raise RejectedError(text or f"nginx -t exited with status {result.returncode}")
        return result.stdout

    def _test_once(self, conf: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*master.master_command(self._binary, self._paths, conf), *arguments]
        try:
            return subprocess.run(
                command,
                capture_output=True,
                timeout=TEST_SECONDS,
                check=False,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            message = f"nginx -t did not finish within {TEST_SECONDS:g} s"
            raise UnfinishedTestError(message) from error
