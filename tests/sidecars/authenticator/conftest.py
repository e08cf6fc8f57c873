"""Fixtures of the authenticator's tests."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fakes.authenticator_process import AuthenticatorProcess, browsing, start
from fakes.oidc_provider import OidcProvider, oidc_provider


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: pytest's own can be too long for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        yield Path(directory)


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[OidcProvider]:
    with oidc_provider(tmp_path / "pki") as result:
        yield result


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """Yield the directory and the process of an authenticator for the tests of a module."""
    with tempfile.TemporaryDirectory(prefix="gh-") as name, start(Path(name)) as process:
        yield Path(name), process
        process.kill()


@pytest.fixture
async def authenticator(
    shared: tuple[Path, subprocess.Popen[bytes]],
) -> AsyncIterator[AuthenticatorProcess]:
    """A new browser of a process that other tests have used: providers, cookies and the log are
    its own. Tests that end a process have one of their own."""
    async with browsing(*shared) as result:
        yield result
