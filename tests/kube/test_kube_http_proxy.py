"""Selection and use of an HTTP proxy to an API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from fakes.inprocess import Server
from gatehouse.apis.resources import NAMESPACES
from gatehouse.kube import config
from gatehouse.kube.client import Client
from gatehouse.kube.http_proxy import proxy_for
from gatehouse.standalone.state_directory import State

HTTPS = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("url", "environ", "expected"),
    [
        ("https://api.example.com:6443", {}, ""),
        ("https://api.example.com:6443", HTTPS, "http://proxy:3128"),
        ("https://api.example.com", {"https_proxy": "proxy:3128"}, "http://proxy:3128"),
        ("http://api.example.com", HTTPS, ""),
        ("http://api.example.com", {"HTTP_PROXY": "http://p"}, "http://p"),
        ("https://127.0.0.1:6443", HTTPS, ""),
        ("https://[::1]:6443", HTTPS, ""),
        ("https://localhost", HTTPS, ""),
    ],
)
def test_scheme_selects_proxy_variable(url: str, environ: dict[str, str], expected: str) -> None:
    assert proxy_for(url, environ) == expected


@pytest.mark.parametrize(
    ("exceptions", "host", "excepted"),
    [
        ("*", "api.example.com", True),
        ("example.com", "api.example.com", True),
        ("example.com", "example.com", True),
        (".example.com", "api.example.com", True),
        ("*.example.com", "api.example.com", True),
        ("example.com", "notexample.com", False),
        ("10.0.0.0/8", "10.96.0.1", True),
        ("10.0.0.0/8", "11.96.0.1", False),
        ("10.0.0.0/99", "10.96.0.1", False),
        ("a.test, 10.96.0.1", "10.96.0.1", True),
        ("10.96.0.1:443", "10.96.0.1", True),
        ("10.96.0.1:6443", "10.96.0.1", False),
        ("fd00::/8", "[fd00::1]", True),
        ("fd00::1", "[fd00::1]", True),
        ("", "10.96.0.1", False),
    ],
)
def test_exceptions_are_names_addresses_networks_and_ports(
    exceptions: str, host: str, excepted: bool
) -> None:
    result = proxy_for(f"https://{host}:443", {**HTTPS, "NO_PROXY": exceptions})
    assert result == ("" if excepted else HTTPS["HTTPS_PROXY"])


def test_proxy_of_environment_is_used_in_cluster_and_with_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.crt").write_bytes(b"")
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert config.in_cluster({**pod, **HTTPS}, tmp_path).proxy == HTTPS["HTTPS_PROXY"]
    excepted = {**pod, **HTTPS, "NO_PROXY": "10.96.0.0/12"}
    assert config.in_cluster(excepted, tmp_path).proxy == ""
    monkeypatch.setenv("HTTPS_PROXY", "http://fromenv:1")
    cluster = {"server": "https://api.example.com"}
    assert config.from_kubeconfig(_kubeconfig(tmp_path, cluster)).proxy == "http://fromenv:1"
    cluster["proxy-url"] = "http://own:2"
    assert config.from_kubeconfig(_kubeconfig(tmp_path, cluster)).proxy == "http://own:2"


def _kubeconfig(directory: Path, cluster: dict[str, str]) -> Path:
    path = directory / "kubeconfig"
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@contextlib.asynccontextmanager
async def connecting(requests: list[str]) -> AsyncIterator[str]:
    """A proxy that knows CONNECT; notes where it was asked to."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
        requests.append(line)
        host, _, port = line.split()[1].rpartition(":")
        onward = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_copy(reader, onward[1]), _copy(onward[0], writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def test_api_server_is_reached_through_proxy_over_tls(tmp_path: Path) -> None:
    server, requests = Server(State(tmp_path / "s")), list[str]()
    async with server.running(), connecting(requests) as proxy:
        document = yaml.safe_load(server.state.kubeconfig.read_text())
        document["clusters"][0]["cluster"]["proxy-url"] = proxy
        path = tmp_path / "proxied"
        path.write_text(yaml.safe_dump(document))
        async with Client.from_kubeconfig(path) as client:
            assert (await client.list(NAMESPACES)).items
    assert requests == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"]
