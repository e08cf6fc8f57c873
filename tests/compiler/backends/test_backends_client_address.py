"""Client addresses on real proxies: only trusted peers may supply them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2

from differential import proxies
from differential.proxies import PORT, Runner
from fakes import patience
from fakes.envoy_serving import backend, host, plain, route_to
from fakes.loopback import loopback_network
from gatehouse.compiler.backends.envoy import client_ip
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import ClientAddress, DataPlaneSettings

RUNNERS = [
    pytest.param(proxies.with_nginx, id="nginx"),
    pytest.param(proxies.with_envoy, id="envoy"),
]
PROXY = b"PROXY TCP4 203.0.113.9 192.0.2.1 5555 80\r\n"
FORWARDED = b"X-Forwarded-For: 203.0.113.9\r\n"


async def asked(address: str, source: str, *, first: bytes = b"", header: bytes = b"") -> Any:
    """Send a request from ``source``; return the headers that the backend received, or None."""
    reader, writer = await asyncio.open_connection(address, PORT, local_addr=(source, 0))
    writer.write(first + b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + header + b"\r\n")
    try:
        answer = await asyncio.wait_for(reader.read(), patience.SECONDS)
    except ConnectionError:
        return None
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return dict(json.loads(body)["headers"]) if b" 200 " in head.split(b"\r\n")[0] else None


async def seen(
    runner: Runner, known: ClientAddress, directory: Path, source: str, **request: bytes
) -> str | None:
    """Return the client address that a backend receives, or None if the connection is closed."""
    address = f"{loopback_network()}.1"
    async with backend("a") as endpoint:
        cluster = ir.Cluster("a", (endpoint,))
        edge = DataPlaneSettings(client_address=known)
        gateway = plain([host("", route_to("a"))], [cluster], bind_address=address, settings=edge)
        async with runner(gateway, directory):
            headers = await asked(address, source, **request)
    return str(headers["x-real-ip"]) if headers is not None else None


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(
    "trusted",
    [
        ("127.0.8.1",),
        ("127.0.8.0/24",),
        ("0.0.0.0/0",),
        pytest.param(("127.0.8.1", "127.0.8.1/32", "127.0.8.1"), id="one network three times"),
    ],
)
async def test_client_address_comes_from_trusted_proxy(
    runner: Runner, trusted: tuple[str, ...], tmp_path: Path
) -> None:
    known = ClientAddress("proxy-protocol", trusted)
    assert await seen(runner, known, tmp_path, "127.0.8.1", first=PROXY) == "203.0.113.9"


@pytest.mark.process
@pytest.mark.parametrize(
    ("runner", "address"),
    [
        pytest.param(proxies.with_nginx, "127.0.9.1", id="nginx"),
        pytest.param(proxies.with_envoy, None, id="envoy"),
    ],
)
@pytest.mark.parametrize("trusted", [(), ("127.0.8.0/24",), ("::/0",)])
async def test_client_address_of_untrusted_peer_is_ignored(
    runner: Runner, address: str | None, trusted: tuple[str, ...], tmp_path: Path
) -> None:
    """NGINX uses the peer's address; Envoy cannot, and closes the connection."""
    known = ClientAddress("proxy-protocol", trusted)
    assert await seen(runner, known, tmp_path, "127.0.9.1", first=PROXY) == address


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(
    ("trusted", "address"),
    [
        ((), "127.0.9.1"),
        (("127.0.8.0/24",), "127.0.9.1"),
        (("127.0.9.1",), "203.0.113.9"),
        (("127.0.9.0/24", "2001:db8::/32"), "203.0.113.9"),
    ],
)
async def test_forwarded_header_is_used_from_trusted_addresses_only(
    runner: Runner, trusted: tuple[str, ...], address: str, tmp_path: Path
) -> None:
    known = ClientAddress("x-forwarded-for", trusted)
    assert await seen(runner, known, tmp_path, "127.0.9.1", header=FORWARDED) == address


def test_every_chain_is_restricted_to_trusted_proxies() -> None:
    listener = listener_pb2.Listener(
        filter_chains=[listener_components_pb2.FilterChain(name="a")],
        default_filter_chain=listener_components_pb2.FilterChain(name="else"),
    )
    known = ClientAddress("proxy-protocol", ("10.0.0.0/8", "2001:db8::1"))
    client_ip.admit(listener, DataPlaneSettings(client_address=known))
    assert not listener.HasField("default_filter_chain")
    ranges = {
        chain.name: [
            (direct_source_prefix_range.address_prefix, direct_source_prefix_range.prefix_len.value)
            for direct_source_prefix_range in chain.filter_chain_match.direct_source_prefix_ranges
        ]
        for chain in listener.filter_chains
    }
    assert ranges == {key: [("10.0.0.0", 8), ("2001:db8::1", 128)] for key in ["a", "else"]}
