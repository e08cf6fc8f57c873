"""Fixtures of the authenticator's tests."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fakes.authenticator_process import AuthenticatorProcess, running
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


@pytest.fixture
async def authenticator(
    tmp_path: Path, provider: OidcProvider
) -> AsyncIterator[AuthenticatorProcess]:
    async with running(tmp_path) as result:
        yield result
