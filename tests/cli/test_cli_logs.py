"""The formats of the log."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gatehouse.cli import logs

SCRIPT = """
import sys, structlog
from gatehouse.cli import logs
logs.configure("info", sys.argv[1])
structlog.get_logger("test").info("hello", name="world")
"""


@pytest.mark.parametrize(
    ("name", "is_json"), [("auto", True), ("json", True), ("text", False), ("console", False)]
)
def test_log_has_the_configured_format_when_stderr_is_not_a_terminal(
    name: str, is_json: bool
) -> None:
    assert name in logs.LOG_FORMATS
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, name], capture_output=True, text=True, check=True
    )
    assert "hello" in done.stderr
    assert done.stderr.startswith("{") is is_json


@pytest.mark.parametrize(
    ("options", "rejected"),
    [
        (["--log-format", "xml"], "'xml' is not one of 'auto', 'text', 'json'"),
        (["up", "--log-format", "xml"], "'xml' is not one of 'auto', 'text', 'json'"),
        (["up", "--log-level", "loud"], "'loud' is not one of 'debug', 'info'"),
    ],
)
def test_unknown_format_is_rejected(options: list[str], rejected: str) -> None:
    command = [sys.executable, "-m", "gatehouse", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert rejected in done.stderr
