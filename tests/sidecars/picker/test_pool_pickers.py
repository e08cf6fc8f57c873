"""The picker that the suite of the inference extension gets: its pools, choices and protocol."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as protocol
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as service
from google.protobuf.json_format import MessageToDict

from fakes import pool_pickers
from fakes.endpoint_pickers import DESTINATION
from fakes.inprocess import Server
from fakes.loopback import free_port
from fakes.patience import limit, pause
from fakes.pool_pickers import NAME, SELECTION, SERVED, pool_picker
from fakes.server_fixtures import server
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["server"]

HOST = "127.0.0.1"
POOL: dict[str, Any] = {
    **resources.INFERENCE_POOLS.type_meta,
    "metadata": {"name": "models", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"app": "model", "size": "small"}},
        "targetPorts": [{"number": 3000}, {"number": 3002}],
        "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
    },
}
SELECTED = {"app": "model", "size": "small"}
ARGUMENTS = ("--pool-name", "models", "--pool-namespace", "default", "--zap-encoder", "json")


@pytest.fixture
async def client(server: Server) -> AsyncIterator[kube.Client]:
    """Yield a client of an API server with a pool of two ready Pods, and Pods of no use to it."""
    async with server.client() as result:
        await result.create(resources.INFERENCE_POOLS, POOL)
        await run_pod(result, "10.0.0.1")
        await run_pod(result, "10.0.0.2")
        await run_pod(result, "10.0.0.3", ready="False")
        await run_pod(result, "10.0.0.4", labels={"app": "model"})
        yield result


@pytest.fixture
async def picker(client: kube.Client, server: Server) -> AsyncIterator[grpc.aio.Channel]:
    arguments = (*ARGUMENTS, "--grpc-port", "0", "--secure-serving=false")
    async with (
        pool_picker(arguments, server.state.kubeconfig) as port,
        grpc.aio.insecure_channel(f"{HOST}:{port}") as channel,
    ):
        yield channel


async def run_pod(
    client: kube.Client, address: str, *, ready: str = "True", labels: dict[str, str] | None = None
) -> None:
    name = address.replace(".", "-")
    pod = {
        "metadata": {"name": name, "namespace": "default", "labels": labels or SELECTED},
        "spec": {"containers": [{"name": "model", "image": "model"}]},
    }
    await client.create(resources.PODS, pod)
    await set_ready(client, address, ready)


async def set_ready(client: kube.Client, address: str, ready: str) -> None:
    status = {"podIP": address, "conditions": [{"type": "Ready", "status": ready}]}
    name = address.replace(".", "-")
    await client.patch(resources.PODS, name, {"status": status}, "default", subresource="status")


def header_map(fields: dict[str, str]) -> base_pb2.HeaderMap:
    values = [
        base_pb2.HeaderValue(key=name, raw_value=value.encode()) for name, value in fields.items()
    ]
    return base_pb2.HeaderMap(headers=values)


def headers(fields: dict[str, str], *, ends: bool = True) -> protocol.ProcessingRequest:
    message = protocol.HttpHeaders(headers=header_map(fields), end_of_stream=ends)
    return protocol.ProcessingRequest(request_headers=message)


def body(content: bytes, *, ends: bool) -> protocol.ProcessingRequest:
    message = protocol.HttpBody(body=content, end_of_stream=ends)
    return protocol.ProcessingRequest(request_body=message)


async def ask(
    channel: grpc.aio.Channel, *messages: protocol.ProcessingRequest
) -> list[protocol.ProcessingResponse]:
    """Return the responses of one call."""
    async with limit():
        stub = service.ExternalProcessorStub(channel)
        return [answer async for answer in stub.Process(iter(messages))]


def in_metadata(answer: protocol.ProcessingResponse) -> str:
    """Return the endpoint in the dynamic metadata."""
    return str(MessageToDict(answer.dynamic_metadata)["envoy.lb"][DESTINATION])


async def pick(channel: grpc.aio.Channel, selection: str = "") -> str:
    """Return the endpoint that a request gets; the status if it gets none."""
    (answer,) = await ask(channel, headers({SELECTION: selection}))
    if answer.HasField("immediate_response"):
        return str(answer.immediate_response.status.code)
    (option,) = answer.request_headers.response.header_mutation.set_headers
    value = option.header.raw_value.decode()
    assert option.header.key == DESTINATION
    assert in_metadata(answer) == value
    return value


async def test_ready_endpoints_take_turns(picker: grpc.aio.Channel) -> None:
    endpoints = [f"10.0.0.{pod}:{port}" for pod in (1, 2) for port in (3000, 3002)]
    assert [await pick(picker) for _ in range(8)] == [*endpoints, *endpoints]


@pytest.mark.parametrize(
    ("selection", "endpoints"),
    [
        ("10.0.0.2", {"10.0.0.2:3000", "10.0.0.2:3002"}),
        ("10.0.0.2:3002", {"10.0.0.2:3002"}),
        ("10.0.0.9, 10.0.0.1:3000,10.0.0.2:3000", {"10.0.0.1:3000", "10.0.0.2:3000"}),
        # Not ready, not selected, another port, and the start of an address.
        ("10.0.0.3", {"503"}),
        ("10.0.0.4", {"503"}),
        ("10.0.0.1:3001", {"503"}),
        ("10.0.0.", {"503"}),
    ],
)
async def test_request_selects_endpoints(
    picker: grpc.aio.Channel, selection: str, endpoints: set[str]
) -> None:
    assert {await pick(picker, selection) for _ in range(4)} == endpoints


async def test_each_request_gets_the_pods_of_now(
    picker: grpc.aio.Channel, client: kube.Client
) -> None:
    assert await pick(picker, "10.0.0.3:3000") == "503"
    await set_ready(client, "10.0.0.3", "True")
    assert await pick(picker, "10.0.0.3:3000") == "10.0.0.3:3000"
    await client.delete(resources.INFERENCE_POOLS, "models", namespace="default")
    assert await pick(picker) == "503"


async def test_headers_are_answered_before_the_body(picker: grpc.aio.Channel) -> None:
    first, second = await ask(
        picker, headers({}, ends=False), body(b"{", ends=False), body(b"}", ends=True)
    )
    assert in_metadata(first) == "10.0.0.1:3000"
    streamed = second.request_body.response.body_mutation.streamed_response
    assert (streamed.body, streamed.end_of_stream) == (b"{}", True)


async def test_response_tells_which_endpoint_served(picker: grpc.aio.Channel) -> None:
    message = protocol.HttpHeaders(headers=header_map({":status": "200"}))
    response = protocol.ProcessingRequest(response_headers=message)
    served = {f"{DESTINATION}-served": "10.0.0.2:3002"}
    response.metadata_context.filter_metadata["envoy.lb"].update(served)
    _, answer = await ask(picker, headers({}), response)
    (option,) = answer.response_headers.response.header_mutation.set_headers
    assert (option.header.key, option.header.raw_value) == (SERVED, b"10.0.0.2:3002")


@contextlib.asynccontextmanager
async def program(kubeconfig: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", pool_pickers.__name__, *arguments),
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.process
async def test_program_serves_with_tls_until_it_is_terminated(
    client: kube.Client, server: Server
) -> None:
    port = free_port()
    async with program(server.state.kubeconfig, *ARGUMENTS, "--grpc-port", str(port)) as process:
        async with limit():
            while True:
                with contextlib.suppress(OSError):
                    pem = await asyncio.to_thread(ssl.get_server_certificate, (HOST, port))
                    break
                assert process.returncode is None
                await pause()
        # The certificate is its own authority for this test: others do not verify it.
        credentials = grpc.ssl_channel_credentials(pem.encode())
        options = [("grpc.ssl_target_name_override", NAME)]
        async with grpc.aio.secure_channel(f"{HOST}:{port}", credentials, options) as channel:
            assert await pick(channel) == "10.0.0.1:3000"
        process.terminate()
        async with limit():
            assert await process.wait() == 0
