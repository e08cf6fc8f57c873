"""Checks with Prometheus' own tool."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

_CACHED = Path(__file__).parents[2] / ".cache/prometheus/usr/bin"


def program(name: str) -> str:
    """Return the path of a program of Prometheus; skip the test if it is missing."""
    path = shutil.which(name) or shutil.which(_CACHED / name)
    if path is None:
        pytest.skip(f"no {name} in PATH or at {_CACHED}: Debian's package prometheus has it")
    return path


async def run(*arguments: str, stdin: str = "") -> str:
    """Return the output of `promtool`; skip the test if it is missing."""
    process = await asyncio.create_subprocess_exec(
        program("promtool"), *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate(stdin.encode())
    return output.decode()


async def check(page: str) -> str:
    """Return the problems that ``promtool check metrics`` finds; skip if it is missing."""
    return await run("check", "metrics", stdin=page)
