"""Tests of programs for Kubernetes with the API server's fixture, as the examples show them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "api-server"
OPTIONS = ("-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function")


@pytest.mark.process
@pytest.mark.parametrize("file", sorted(path.name for path in EXAMPLES.glob("test_*.py")))
def test_example_passes(file: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(EXAMPLES, project)
    # The name of a kubeconfig there would be that of a cluster.
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *OPTIONS, file],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
