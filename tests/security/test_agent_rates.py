"""Attacks of an agent with many calls and messages on the time of the control plane.

Each attack runs against the real gRPC server. What the server keeps of it is counted in the state
of the attacker's stream or instance, and an agent of another Gateway gets its configuration.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest
import structlog
from envoy.service.discovery.v3 import discovery_pb2

from fakes.agent_attack import (
    ATTACKER,
    STREAMS,
    UNARY,
    ads,
    assert_other_gateway_is_served,
    channel,
    refusal,
    stream_statuses,
)
from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.patience import until
from gatehouse.dataplane import agent_limits
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.dataplane.xds.delta import DELTA_METHOD, DeltaStream
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    SECRET_TYPE_URL,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.sotw import SOTW_METHOD, SotwStream
from gatehouse.transports.agents import call_auth, call_rates
from gatehouse.transports.agents.token_auth import Identity
from gatehouse.transports.xds.services import ADS_SERVICE, XdsServices
from gatehouse.wire.mpi.v1 import files_pb2

Reply, SotwReply = discovery_pb2.DeltaDiscoveryResponse, discovery_pb2.DiscoveryResponse


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time by which calls are counted; before the control plane starts."""
    result = [100.0]
    make = call_rates.CallRates
    monkeypatch.setattr(
        call_rates, "CallRates", lambda _clock, limit: make(lambda: result[0], limit)
    )
    return result


FOREIGN_FILE = files_pb2.GetFileRequest(file_meta=files_pb2.FileMeta(name="a", hash="none"))
FLOODS: dict[str, tuple[str, bytes, grpc.StatusCode]] = {
    **{name: (UNARY[name], b"", grpc.StatusCode.OK) for name in UNARY if name != "file"},
    "health": ("/mpi.v1.CommandService/UpdateDataPlaneHealth", b"", grpc.StatusCode.OK),
    "missing-file": (UNARY["file"], FOREIGN_FILE.SerializeToString(), grpc.StatusCode.NOT_FOUND),
}
"""Paths, messages and statuses of calls within the limit."""


@pytest.mark.parametrize("flood", FLOODS)
async def test_flood_of_calls_of_an_instance_is_refused_and_others_are_served(
    now: list[float], plane: ControlPlane, flood: str
) -> None:
    """The rate of the calls is limited, whatever connections they use."""
    path, message, accepted = FLOODS[flood]
    plane.server.publish(GATEWAY, FileSet([File.make("gatehouse/http.conf", "own")]))

    async def statuses(opened: grpc.aio.Channel, token: str, number: int) -> Counter[Any]:
        method: Any = opened.unary_unary(path)
        codes: Counter[Any] = Counter()
        # A connection has at most 100 calls at a time.
        for size in [50] * (number // 50) + [number % 50]:
            calls = [method(message, metadata=(("authorization", token),)) for _ in range(size)]
            codes.update([await call.code() for call in calls])
        return codes

    with structlog.testing.capture_logs() as logs:
        async with channel(plane) as first, channel(plane) as second:
            most = agent_limits.MAX_CALL_BURST
            results = await statuses(first, ATTACKER, most // 2)
            results += await statuses(second, ATTACKER, most)
            refused = grpc.StatusCode.RESOURCE_EXHAUSTED
            assert results == {accepted: most + 1, refused: most // 2 - 1}
            method: Any = first.unary_unary(path)
            call = method(message, metadata=(("authorization", ATTACKER),))
            assert await refusal(call) == (refused, call_rates.CALL_LIMIT.reason)
            assert await statuses(first, "good:pod-1", 5) == {accepted: 5}
            now[0] += 1
            results = await statuses(first, ATTACKER, 2 * agent_limits.MAX_CALLS_PER_SECOND)
            assert results[accepted] == agent_limits.MAX_CALLS_PER_SECOND
    assert [log["instance"] for log in logs if log["event"].endswith("agent refused")] == ["evil"]


async def test_large_reports_use_more_of_the_rate() -> None:
    now = 0.0
    rates = call_rates.CallRates(lambda: now, call_rates.CALL_LIMIT)
    identity = Identity("shop/web", "evil")
    for _ in range(12):
        rates.count(identity, agent_limits.MAX_MESSAGE_BYTES)
    with pytest.raises(agent_limits.MessageRefused):
        rates.count(identity)
    rates.count(Identity("shop/web", "good"))
    now = 60.0
    rates.count(Identity("shop/web", "third"))
    assert len(rates._uses) == 1


FILE = File.make("gatehouse/http.conf", "own")
FETCH = files_pb2.GetFileRequest(
    file_meta=files_pb2.FileMeta(name=FILE.path, hash=FILE.digest)
).SerializeToString()
FILE_STREAM = "/mpi.v1.FileService/GetFileStream"


async def fetched(opened: grpc.aio.Channel, token: str, number: int) -> Counter[Any]:
    """Fetch the same file many times. A connection has at most 100 calls at a time."""
    method: Any = opened.unary_unary(UNARY["file"])
    codes: Counter[Any] = Counter()
    for size in [90] * (number // 90) + [number % 90]:
        calls = [method(FETCH, metadata=(("authorization", token),)) for _ in range(size)]
        codes.update([await call.code() for call in calls])
    return codes


async def test_agent_fetches_its_files_several_times_and_then_at_a_rate(
    now: list[float], plane: ControlPlane
) -> None:
    """Other agents are served, and the attacker's own reports have a limit of their own."""
    small = [File.make(f"gatehouse/{number}.conf", "own") for number in range(20)]
    plane.server.publish(GATEWAY, FileSet([FILE, *small]))
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    with structlog.testing.capture_logs() as logs:
        async with channel(plane) as opened:
            most = agent_limits.MAX_REQUEST_BURST + agent_limits.REQUESTS_PER_PUBLISHED * 21
            results = await fetched(opened, ATTACKER, most + 90)
            # The bytes of the files count a little.
            assert results[grpc.StatusCode.OK] in (most, most + 1)
            assert results.total() - results[grpc.StatusCode.OK] == results[exhausted]
            stream: Any = opened.unary_stream(FILE_STREAM)
            call = stream(FETCH, metadata=(("authorization", ATTACKER),))
            assert await refusal(call) == (exhausted, call_rates.REQUEST_LIMIT.reason)
            assert await fetched(opened, "good:pod-1", 90) == {grpc.StatusCode.OK: 90}
            status: Any = opened.unary_unary(UNARY["status"])
            await status(b"", metadata=(("authorization", ATTACKER),))
            now[0] += 0.5
            results = await fetched(opened, ATTACKER, 180)
            half = agent_limits.MAX_REQUESTS_PER_SECOND // 2
            assert half - 1 <= results[grpc.StatusCode.OK] <= half + 1
    assert [log["instance"] for log in logs if log["event"].endswith("agent refused")] == ["evil"]


async def test_large_files_use_more_of_the_rate(now: list[float], plane: ControlPlane) -> None:
    """Their Gateway may have large files: what they use more, they are granted more."""
    large = File.make("gatehouse/large.conf", "x" * (4 << 20))
    identity = Identity(GATEWAY, "evil")
    plane.server.publish(GATEWAY, FileSet([FILE, large]))
    fleet = plane.server._fleet
    units = 2 + (len(large.content) + len(FILE.content)) / agent_limits.CALL_BYTES
    assert fleet.fetch_units(identity) == units
    assert fleet.fetch_units(Identity("shop/missing", "evil")) == 0
    plane.server.publish(GATEWAY, FileSet([FILE]))
    # Agents may still fetch files of the earlier file set.
    assert fleet.fetch_units(identity) == units
    callers = call_auth.CallAuthorizer(call_auth.by_token(None), lambda _: None)  # type: ignore[arg-type]
    cost = 1 + len(large.content) / agent_limits.CALL_BYTES
    most = agent_limits.MAX_REQUEST_BURST + agent_limits.REQUESTS_PER_PUBLISHED * units
    for _ in range(int(most / cost) + 1):
        callers.count_request(identity, len(large.content), units)
    with pytest.raises(agent_limits.MessageRefused):
        callers.count_request(identity, len(large.content), units)


async def test_agents_of_large_gateways_stay_within_the_limits(now: list[float]) -> None:
    """30,000 files, fetched by an agent whose container crashes again and again; then few."""
    callers = call_auth.CallAuthorizer(call_auth.by_token(None), lambda _: None)  # type: ignore[arg-type]
    identity = Identity(GATEWAY, "good")
    for pause in (0, 10, 20, 40, 80, 160, 300, 300, 300):
        now[0] += pause
        for _ in range(30_000):
            callers.count_request(identity, 2_000, 30_000 * (1 + 2_000 / agent_limits.CALL_BYTES))
    callers.count_request(identity, 2_000, 10)


MESSAGES = {
    "v3": (STREAMS["v3"], b""),
    "v2": (STREAMS["v2"], b""),
    "delta": (f"/{ADS_SERVICE}/{DELTA_METHOD}", b""),
    "sotw": (f"/{ADS_SERVICE}/{SOTW_METHOD}", b""),
    "answers": (
        f"/{ADS_SERVICE}/{DELTA_METHOD}",
        DeltaStream.Message(type_url=CLUSTER_TYPE_URL, response_nonce="7").SerializeToString(),
    ),
    "same subscription": (
        f"/{ADS_SERVICE}/{SOTW_METHOD}",
        SotwStream.Message(type_url=CLUSTER_TYPE_URL).SerializeToString(),
    ),
}
"""Paths of streams, and messages that say nothing new."""


@pytest.mark.parametrize("kind", MESSAGES)
async def test_flood_of_messages_ends_a_stream_and_others_are_served(
    now: list[float], plane: ControlPlane, kind: str
) -> None:
    path, message = MESSAGES[kind]
    refused = (grpc.StatusCode.RESOURCE_EXHAUSTED, REQUESTS)
    for most in (agent_limits.MAX_REQUEST_BURST, agent_limits.MAX_REQUESTS_PER_SECOND):
        assert await flood(plane, path, message, most) != refused
        assert await flood(plane, path, message, 2) == refused
        now[0] += 1
    await assert_other_gateway_is_served(plane)


@pytest.mark.parametrize("delta", [True, False])
async def test_openings_of_ads_streams_are_limited(
    now: list[float], tmp_path: Path, delta: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = msgspec.structs.replace(call_rates.CALL_LIMIT, burst=30)
    monkeypatch.setattr(call_rates, "CALL_LIMIT", fewer)
    async with ControlPlane(tmp_path) as plane, channel(plane) as opened:
        for _ in range(fewer.burst + 1):
            call = ads(opened, ATTACKER, DELTA_METHOD if delta else SOTW_METHOD)
            await call.initial_metadata()
            call.cancel()
            await until(lambda: not plane.server.envoys.fleet._gateways)
        call = ads(opened, ATTACKER)
        exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await refusal(call) == (exhausted, call_rates.CALL_LIMIT.reason)
        await assert_other_gateway_is_served(plane)
        now[0] += 1
        call = ads(opened, ATTACKER)
        assert await call.initial_metadata()
        call.cancel()


@pytest.mark.parametrize("delta", [True, False])
async def test_envoy_requests_each_secret_by_itself_and_answers_each_response(
    now: list[float], plane: ControlPlane, delta: bool
) -> None:
    """More messages than the burst of an attacker, all of them at one time."""
    names = [f"certificate-{number}" for number in range(300)]
    number = agent_limits.MAX_REQUEST_BURST // 2
    make = DeltaStream if delta else SotwStream
    fleet = plane.server.envoys.fleet
    plane.server.envoys.publish(
        GATEWAY, ResourceSet(XdsResource.make(SECRET_TYPE_URL, name, b"pair") for name in names)
    )
    identity = Identity(GATEWAY, "good")
    callers = call_auth.CallAuthorizer(call_auth.by_token(None), lambda _: None)  # type: ignore[arg-type]
    services = XdsServices(fleet, callers)
    stream: Any = fleet.open(identity, make)

    def send(**fields: Any) -> None:
        request = make.Message(type_url=SECRET_TYPE_URL, **fields).SerializeToString()
        services._receive(stream, make.Message.FromString, request)

    for _ in range(8):
        for index, name in enumerate(names):
            if delta:
                send(resource_names_subscribe=[name])
            else:
                send(resource_names=names[: index + 1])
        if delta:
            send(resource_names_unsubscribe=names)
    send(**({"resource_names_subscribe": names} if delta else {"resource_names": names}))
    answered = 0
    for index in range(number):
        body = str(index).encode()
        plane.server.envoys.publish(
            GATEWAY,
            ResourceSet(XdsResource.make(SECRET_TYPE_URL, name, body) for name in names[:3]),
        )
        while (message := stream.dialogue.next()) is not None:
            nonce = (Reply if delta else SotwReply).FromString(message).nonce
            send(response_nonce=nonce, **({} if delta else {"resource_names": names}))
            answered += 1
    assert answered > agent_limits.MAX_REQUEST_BURST
    fleet.close(stream)


PADDING = b"\x82\x7d\xff\xff\x3e" + bytes((1 << 20) - (1 << 14) - 1)
"""Field 2000 with almost 1 MiB, which every message may have."""
CALLS, REQUESTS = call_rates.CALL_LIMIT.reason, call_rates.REQUEST_LIMIT.reason
LIMIT_OF_RPC = {
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources": REQUESTS,
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources": REQUESTS,
    "/f5.nginx.agent.sdk.Commander/CommandChannel": REQUESTS,
    "/f5.nginx.agent.sdk.Commander/Download": CALLS,
    "/f5.nginx.agent.sdk.Commander/Upload": REQUESTS,
    "/f5.nginx.agent.sdk.MetricsService/Stream": REQUESTS,
    "/f5.nginx.agent.sdk.MetricsService/StreamEvents": REQUESTS,
    "/gatehouse.v1.FileService/GetFiles": REQUESTS,
    "/mpi.v1.CommandService/CreateConnection": CALLS,
    "/mpi.v1.CommandService/Subscribe": REQUESTS,
    "/mpi.v1.CommandService/UpdateDataPlaneHealth": CALLS,
    "/mpi.v1.CommandService/UpdateDataPlaneStatus": CALLS,
    "/mpi.v1.FileService/GetFile": REQUESTS,
    "/mpi.v1.FileService/GetFileStream": REQUESTS,
    "/mpi.v1.FileService/GetOverview": CALLS,
    "/mpi.v1.FileService/UpdateFile": CALLS,
    "/mpi.v1.FileService/UpdateFileStream": REQUESTS,
    "/mpi.v1.FileService/UpdateOverview": CALLS,
}
"""For each RPC, the limit of the messages that one instance sends."""


async def flood(plane: ControlPlane, path: str, message: bytes, number: int) -> Any:
    """Send messages, each in a call or all in one stream. Return the status of the last call."""
    is_stream = LIMIT_OF_RPC[path] == REQUESTS and "/GetFile" not in path
    calls = [[message] * number] if is_stream else [[message]] * number
    return (await stream_statuses(plane, path, calls))[-1]


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("path", LIMIT_OF_RPC)
async def test_messages_of_every_rpc_are_limited_in_number_and_bytes(
    now: list[float], tmp_path: Path, path: str, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CALL_LIMIT", "REQUEST_LIMIT"):
        fewer = msgspec.structs.replace(getattr(call_rates, name), burst=60)
        monkeypatch.setattr(call_rates, name, fewer)
    monkeypatch.setattr(call_auth, "REQUESTS_PER_PUBLISHED", 0)
    message = FETCH if "/GetFile" in path else b""
    most, refused = 60, (grpc.StatusCode.RESOURCE_EXHAUSTED, LIMIT_OF_RPC[path])
    if size == "large":
        message += PADDING
        most = int(60 / (1 + len(message) / agent_limits.CALL_BYTES))
    async with ControlPlane(tmp_path) as plane:
        plane.server.publish(GATEWAY, FileSet([FILE]))
        assert await flood(plane, path, message, most // 2 - 1) != refused
        now[0] += 1000
        assert await flood(plane, path, message, most + 3) == refused
        await assert_other_gateway_is_served(plane)


async def test_every_served_rpc_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of a further RPC must be stated and tested, too."""
    paths: set[str] = set()
    make = grpc.method_handlers_generic_handler

    def collect(service: str, methods: dict[str, Any]) -> grpc.GenericRpcHandler:
        paths.update(f"/{service}/{method}" for method in methods)
        return make(service, methods)

    monkeypatch.setattr(grpc, "method_handlers_generic_handler", collect)
    async with ControlPlane(tmp_path):
        pass
    assert paths == LIMIT_OF_RPC.keys()
