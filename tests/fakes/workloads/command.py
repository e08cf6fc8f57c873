"""Start and end of the process that runs Pods of tests."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from fakes import patience

TESTS = Path(__file__).parents[2]

ImageTable = dict[str, dict[str, Any]]
"""Images by name, each with ``command`` and ``env``."""


class Workloads:
    """A process that runs Pods of one API server, with a network of its own."""

    def __init__(
        self,
        kubeconfig: Path,
        node: Path,
        images: ImageTable,
        pod_kubeconfig: Path | None = None,
    ) -> None:
        """``node``: directory of `gatehouse node`, from which the API server reads Pod logs.
        ``pod_kubeconfig`` is written for Pods that use the API."""
        self.network = f"10.{random.randint(128, 250)}.{random.randint(0, 255)}.0/24"
        self.gateway = self.network.replace(".0/24", ".1")
        """Address of this machine for the Pods: that of their bridge."""
        self._kubeconfig, self._node, self._images = kubeconfig, node, images
        self._pod_kubeconfig = pod_kubeconfig
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, log: Path) -> None:
        """Start the process; it waits for the API server."""
        table = log.with_name("images.yaml")
        table.write_text(yaml.safe_dump(self._images))
        command = [
            *(sys.executable, "-m", "fakes.workloads", "--kubeconfig", str(self._kubeconfig)),
            *("--dir", str(self._node), "--images", str(table), "--pod-network", self.network),
        ]
        if self._pod_kubeconfig is not None:
            command += ["--pod-kubeconfig", str(self._pod_kubeconfig)]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def stop(self) -> None:
        """End the process and all Pods."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(patience.SECONDS)
