"""Fixtures of the TLS connector's tests."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509

from fakes.authority import Authority
from fakes.tls_connector_process import REAL, ConnectorProcess, Endpoint, echo, running


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: pytest's own can be too long for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        yield Path(directory)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def connector(tmp_path: Path) -> Iterator[ConnectorProcess]:
    with running(tmp_path, 30.0) as process:
        yield process


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[ConnectorProcess]:
    """Yield a connector whose sockets linger only briefly."""
    with running(tmp_path, 0.5) as process:
        yield process


@pytest.fixture
def endpoints(authority: Authority) -> Iterator[Callable[..., Endpoint]]:
    servers: list[Endpoint] = []

    def make(
        serve: Callable[[ssl.SSLSocket], None] = echo,
        *names: x509.GeneralName,
        issuer: Authority = authority,
        context: ssl.SSLContext | None = None,
    ) -> Endpoint:
        context = context or issuer.server(f"endpoint-{len(servers)}", *(names or (REAL,)))
        servers.append(Endpoint(context, serve))
        return servers[-1]

    yield make
    for server in servers:
        server.close()
