"""Copies of gRPC calls: real proxies verify the backend that gets them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from cryptography import x509

from differential.proxies import PORT, Runner
from fakes import patience
from fakes.authority import Authority
from fakes.envoy_serving import host, plain, route_to
from fakes.loopback import loopback_network
from fakes.served_objects import RUNNERS
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir

pytestmark = pytest.mark.process

Calls = list[tuple[str, bytes, dict[str, Any]]]
"""Method, message and metadata of each call."""


class _Service(grpc.GenericRpcHandler):
    """Methods that answer with the message of the call."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def answer(request: bytes, context: Any) -> bytes:
            metadata = dict(handler_call_details.invocation_metadata)
            self._calls.append((handler_call_details.method, request, metadata))
            return request

        return grpc.unary_unary_rpc_method_handler(answer)


@contextlib.asynccontextmanager
async def _service(calls: Calls, pair: tuple[Path, Path] | None = None) -> AsyncIterator[int]:
    """Run a gRPC server, with TLS if there is a key pair. Yield its port."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Service(calls),))
    if pair is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        certificate, key = (path.read_bytes() for path in pair)
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@pytest.mark.parametrize("runner", RUNNERS)
async def test_copy_of_a_call_goes_only_to_a_backend_with_the_name_of_its_policy(
    runner: Runner, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("copy", x509.DNSName("copy.test"))
    calls: Calls = []
    copies: Calls = []
    async with _service(calls) as port, _service(copies, pair) as copy_port:
        endpoint = ir.Endpoint("127.0.0.1", port)
        copying = (ir.Endpoint("127.0.0.1", copy_port),)
        names = {"good": "copy.test", "bad": "other.test"}
        clusters = [ir.Cluster("c", (endpoint,), "grpc")] + [
            ir.Cluster(name, copying, "grpc", tls=ir.BackendTls(server_name, "trust"))
            for name, server_name in names.items()
        ]
        headers = ir.HeaderEdit(set=(ir.HeaderValue("x-set", "by rule"),))
        routes = [
            route_to(
                "c",
                f"ns/r/{number}/0",
                f"/copy.{name}",
                grpc=True,
                mirrors=(ir.Mirror(name),),
                request_headers=headers,
            )
            for number, name in enumerate(names)
        ]
        address = f"{loopback_network()}.1"
        bundle = ir_gateway.TrustBundle("trust", authority.pem)
        gateway = plain([host("a.example", *routes)], clusters, trust_bundles=(bundle,))
        gateway = msgspec.structs.replace(gateway, bind_address=address)
        options = [("grpc.default_authority", "a.example")]
        async with (
            runner(gateway, tmp_path),
            grpc.aio.insecure_channel(f"{address}:{PORT}", options=options) as channel,
        ):
            for name in ("bad", "good"):
                method: Any = channel.unary_unary(f"/copy.{name}/Call")
                assert await method(b"hello") == b"hello"
            await patience.until(lambda: copies)
    assert [method for method, _, _ in calls] == ["/copy.bad/Call", "/copy.good/Call"]
    ((copied, message, metadata),) = copies
    assert (copied, message, metadata["x-set"]) == ("/copy.good/Call", b"hello", "by rule")
