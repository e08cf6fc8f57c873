"""Attacks on gRPC servers: guessing content of others, bombs, slow readers and floods."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest
from envoy.service.discovery.v3 import discovery_pb2
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc
from h2.connection import H2Connection
from h2.events import ConnectionTerminated

from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.agent_v3 import claimant
from fakes.durations import pace
from fakes.patience import SECONDS, limit, until
from gatehouse.agent.envoy import downstream
from gatehouse.agent.envoy.relay import Relay
from gatehouse.dataplane.file_set import File, FileSet, base64_sha256
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, ResourceSet, XdsResource
from gatehouse.ratelimit import main as ratelimit
from gatehouse.runtime import grpc_limits
from gatehouse.transports import server as agents
from gatehouse.transports.agents import call_rates
from gatehouse.wire.mpi.v1 import files_pb2

OTHER = "shop/other"
SECRET = File.make("gatehouse/secrets/users", "alice:{SHA}secret", secret=True)


@pytest.fixture
async def control_plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with ControlPlane(tmp_path) as plane:
        plane.server.publish(GATEWAY, FileSet([File.make("gatehouse/http.conf", "own")]))
        plane.server.publish(OTHER, FileSet([SECRET]))
        yield plane


async def test_agent_cannot_learn_whether_another_gateway_has_a_file(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent with a valid token, by the hashes of guessed content: the response for a file of
    another Gateway equals that for a file that does not exist."""
    answers, _ = await guessed(control_plane, monkeypatch, 5)
    assert answers["there"] == answers["missing"]
    assert {code for _, code, _, _ in answers["there"]} == {grpc.StatusCode.NOT_FOUND}


@pytest.mark.long
@pytest.mark.timing
async def test_agent_cannot_learn_it_from_the_time_of_a_response(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same agent, with a clock. The spread between requests of one kind is far greater than any
    difference of the kinds."""
    _, times = await guessed(control_plane, monkeypatch, 300)
    medians = [statistics.median(samples) for samples in times.values()]
    assert abs(medians[0] - medians[1]) < statistics.pstdev(times["missing"])


async def guessed(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> tuple[dict[str, set[tuple[Any, ...]]], dict[str, list[float]]]:
    """Return the responses for a file of another Gateway and for none, and their times.

    The limit of calls would hide a difference only from an attacker without patience.
    """
    unlimited = msgspec.structs.replace(call_rates.CALL_LIMIT, burst=1_000_000)
    monkeypatch.setattr(call_rates, "CALL_LIMIT", unlimited)
    guesses = {"there": SECRET.digest, "missing": base64_sha256(b"bob:{SHA}secret")}
    answers: dict[str, set[tuple[Any, ...]]] = {name: set() for name in guesses}
    times: dict[str, list[float]] = {name: [] for name in guesses}
    for number in range(200):
        filler = FileSet([File.make("gatehouse/http.conf", f"{number}")])
        control_plane.server.publish(f"shop/before-{number:03}", filler)
    async with claimant(
        control_plane.port, control_plane.cert, "control.plane", "good:pod-1"
    ) as agent:
        for _ in range(rounds):
            for name, digest in guesses.items():
                begun = time.perf_counter()
                for call in (agent.file, agent.streamed):
                    with pytest.raises(grpc.aio.AioRpcError) as denied:
                        await call(digest)
                    answer = denied.value
                    trailers = tuple(answer.trailing_metadata() or ())
                    answers[name].add((call.__name__, answer.code(), answer.details(), trailers))
                times[name].append(time.perf_counter() - begun)
    return answers, times


class Door:
    """A gRPC server as an attacker reaches it: its channel, and its methods by kind of call."""

    def __init__(self, channel: grpc.aio.Channel, path: str, *, streams: bool) -> None:
        self.channel, self.path, self.streams = channel, path, streams

    async def send(self, message: bytes) -> grpc.StatusCode:
        """Send a compressed message. Return the status of the call."""
        metadata, gzip = (("authorization", "good:pod-1"),), grpc.Compression.Gzip
        if self.streams:
            stream: Any = self.channel.stream_stream(self.path)
            call = stream(metadata=metadata, compression=gzip, timeout=SECONDS)
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(message)
                await call.done_writing()
        else:
            unary: Any = self.channel.unary_unary(self.path)
            call = unary(message, metadata=metadata, compression=gzip, timeout=SECONDS)
        code: grpc.StatusCode = await call.code()
        return code


@contextlib.asynccontextmanager
async def counting() -> AsyncIterator[int]:
    """Run the rate limit service with its options, without its storage. Yield the port."""

    class Service(rls_pb2_grpc.RateLimitServiceServicer):
        async def ShouldRateLimit(self, request: Any, context: Any) -> rls_pb2.RateLimitResponse:
            return rls_pb2.RateLimitResponse(overall_code=rls_pb2.RateLimitResponse.OK)

    server = grpc.aio.server(options=ratelimit._OPTIONS)
    rls_pb2_grpc.add_RateLimitServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


AGENTS = {
    "mpi": ("/mpi.v1.CommandService/CreateConnection", False),
    "mpi-stream": ("/mpi.v1.CommandService/Subscribe", True),
    "commander": ("/f5.nginx.agent.sdk.Commander/CommandChannel", True),
    "ads": (f"/{downstream._SERVICE}/DeltaAggregatedResources", True),
}


@contextlib.asynccontextmanager
async def door(kind: str, plane: ControlPlane, directory: Path) -> AsyncIterator[Door]:
    """Reach one of the servers. It runs in this process."""
    unlimited = (("grpc.max_send_message_length", -1),)
    if kind in AGENTS:
        credentials = grpc.ssl_channel_credentials(plane.cert.read_bytes())
        names = (("grpc.ssl_target_name_override", "control.plane"), *unlimited)
        channel = grpc.aio.secure_channel(f"127.0.0.1:{plane.port}", credentials, names)
        async with channel:
            path, streams = AGENTS[kind]
            yield Door(channel, path, streams=streams)
    elif kind == "relay":
        server = downstream.Downstream(Relay(ResourceSet([])), lambda: None)
        await server.start(directory / "s")
        async with grpc.aio.insecure_channel(f"unix:{directory}/s", unlimited) as channel:
            yield Door(channel, AGENTS["ads"][0], streams=True)
        await server.stop()
    else:
        async with (
            counting() as port,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}", unlimited) as channel,
        ):
            path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
            yield Door(channel, path, streams=False)


@pytest.mark.parametrize("kind", [*AGENTS, "relay", "ratelimit"])
async def test_compressed_message_is_rejected_before_it_is_decompressed(
    kind: str, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Any peer that reaches the port, with a small message that is large when decompressed: no
    server decompresses it, not even up to its own limit."""
    async with door(kind, control_plane, tmp_path) as reached:
        # gRPC's client may see the end of the connection's data first. RESOURCE_EXHAUSTED would
        # mean that the server decompressed the message up to its limit.
        expected = grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL
        assert await reached.send(bytes(1 << 10)) in expected
        assert await reached.send(bytes(40 << 20)) in expected


class Raw:
    """An HTTP/2 connection to a control plane that reads only when a test lets it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.h2 = reader, writer, H2Connection()

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, plane: ControlPlane) -> AsyncIterator[Raw]:
        """Connect with TLS, and reset the connection at the end."""
        context = ssl.create_default_context(cafile=str(plane.cert))
        context.set_alpn_protocols(["h2"])
        raw = cls(
            *await asyncio.open_connection(
                "127.0.0.1", plane.port, ssl=context, server_hostname="control.plane", limit=1024
            )
        )
        raw.h2.initiate_connection()
        try:
            yield raw
        finally:
            raw.writer.transport.abort()
            with contextlib.suppress(OSError):
                await raw.writer.wait_closed()

    def call(self, path: str, message: bytes) -> None:
        """Call a method with one message, and leave the call open."""
        stream = self.h2.get_next_available_stream_id()
        headers = {
            ":method": "POST", ":scheme": "https", ":authority": "control.plane", ":path": path,
            "content-type": "application/grpc", "te": "trailers", "authorization": "good:pod-1",
        }  # fmt: skip
        self.h2.send_headers(stream, list(headers.items()))
        self.h2.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message)
        self.flush()

    def flush(self) -> None:
        """Send what HTTP/2 has to send."""
        self.writer.write(self.h2.data_to_send())


def resident_bytes() -> int:
    """Return the memory of this process, which has the servers."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def test_slow_reader_makes_the_control_plane_store_one_message(
    control_plane: ControlPlane,
) -> None:
    """An agent with a valid token that subscribes and reads nothing: however often a large
    configuration changes, the control plane holds no message per change."""
    request = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER_TYPE_URL)
    request.node.id = "slow"
    async with Raw.connected(control_plane) as raw:
        raw.call(AGENTS["ads"][0], request.SerializeToString())
        await until(lambda: control_plane.server.envoys.report(GATEWAY).instances)
        before = resident_bytes()
        for number in range(60):
            bodies = ((f"c-{index}", b"%d" % number * 10_000) for index in range(100))
            resources = ResourceSet(XdsResource.make(CLUSTER_TYPE_URL, *body) for body in bodies)
            control_plane.server.envoys.publish(GATEWAY, resources)
            await pace(0.05)
        # Each configuration has 1 to 2 MB, all together 115 MB.
        assert resident_bytes() - before < 30 << 20


@pytest.mark.parametrize(
    "path", ["/mpi.v1.FileService/GetFile", "/gatehouse.v1.FileService/GetFiles"]
)
async def test_unread_files_of_one_agent_take_bounded_memory(
    control_plane: ControlPlane, path: str
) -> None:
    """An agent with a valid token that requests one large file many times and reads nothing: the
    control plane holds a few copies, and another agent gets its files."""
    large = File.make("gatehouse/large.conf", b"x" * (1 << 20))
    control_plane.server.publish(GATEWAY, FileSet([large]))
    request = files_pb2.GetFileRequest(file_meta=files_pb2.FileMeta(name="x", hash=large.digest))
    async with Raw.connected(control_plane) as raw:
        before = resident_bytes()
        for _ in range(90):
            raw.call(path, request.SerializeToString())
        memory: list[int] = []
        async with claimant(
            control_plane.port, control_plane.cert, "control.plane", "good:pod-2"
        ) as agent:
            for _ in range(20):
                assert len(await agent.file(large.digest)) == 1 << 20
                memory.append(resident_bytes())
        # 90 copies have 90 MB.
        assert max(memory) - before < 40 << 20


async def test_flood_of_pings_ends_its_connection_only(control_plane: ControlPlane) -> None:
    """Any peer that reaches the port, with pings: its connection ends, and others are served."""
    ended: list[Any] = []
    async with limit(), Raw.connected(control_plane) as raw:
        while not ended:
            for _ in range(20):
                raw.h2.ping(bytes(8))
            raw.flush()
            data = await raw.reader.read(65536)
            events = raw.h2.receive_data(data) if data else [ConnectionTerminated()]
            ended = [event for event in events if isinstance(event, ConnectionTerminated)]
    async with claimant(
        control_plane.port, control_plane.cert, "control.plane", "good:pod-1"
    ) as agent:
        assert await agent.file(base64_sha256(b"own")) == b"own"


@pytest.mark.parametrize(
    "options",
    [agents._OPTIONS, ratelimit._OPTIONS, downstream.OPTIONS],
    ids=["agents", "rls", "relay"],
)
def test_every_server_has_all_limits(options: tuple[tuple[str, int], ...]) -> None:
    """A server without one of the limits would be open to its attack."""
    limits = dict(options)
    assert limits.keys() >= dict(grpc_limits.server_options(1, 1)).keys()
    assert 0 < limits["grpc.max_receive_message_length"] <= 32 << 20
    assert 0 < limits["grpc.max_concurrent_streams"] <= 1000
    assert len(options) == len(limits), "a later option would override a limit"


def test_connections_follow_the_files_that_a_server_may_open() -> None:
    """Systems start processes with 1,024 files, and a server raises this limit after its import."""
    code = (
        "from gatehouse.transports.server import _OPTIONS; "
        "from kube_base.runtime.open_files import raise_limit; "
        "print(dict(_OPTIONS)['grpc.max_allowed_incoming_connections'], raise_limit())"
    )
    command = ["prlimit", "--nofile=64:400", sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["300", "400"]
