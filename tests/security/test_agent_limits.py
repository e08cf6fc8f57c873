"""Attacks of an agent with a valid token on the memory and the time of the control plane.

Each attack runs against the real gRPC server. What the server keeps of it is counted in the state
of the attacker's stream or instance, and an agent of another Gateway gets its configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec
import pytest
import structlog
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.rpc import status_pb2

from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.agent_wire import answer, nginx_agent_resource, wire_agent
from fakes.patience import until
from gatehouse.dataplane import agent_limits
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.dataplane.xds.delta import DELTA_METHOD, DeltaStream, health_request
from gatehouse.dataplane.xds.resources import (
    ADD_ORDER,
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    SECRET_TYPE_URL,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.sotw import SOTW_METHOD, SotwStream
from gatehouse.dataplane.xds.subscription import Subscription
from gatehouse.transports.agents import call_auth, call_rates
from gatehouse.transports.agents.session import Register
from gatehouse.transports.agents.token_auth import Identity
from gatehouse.transports.commander import main_file, messages, payload
from gatehouse.transports.xds.fleet import TOO_MANY_NAMES, AnyStream
from gatehouse.transports.xds.services import ADS_SERVICE, TOO_LARGE_HEAD, XdsServices
from gatehouse.wire.mpi.v1 import files_pb2

ATTACKER, OTHER = "good:evil", "shop/other"
UNLIMITED = (("grpc.max_send_message_length", -1),)
MANY = 100_000
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


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    control_plane = ControlPlane(tmp_path)
    await control_plane.start()
    yield control_plane
    await control_plane.server.stop(0.1)


@contextlib.asynccontextmanager
async def channel(plane: ControlPlane) -> AsyncIterator[grpc.aio.Channel]:
    trusted = grpc.ssl_channel_credentials(plane.cert.read_bytes())
    options = (("grpc.ssl_target_name_override", "control.plane"), *UNLIMITED)
    async with grpc.aio.secure_channel(f"127.0.0.1:{plane.port}", trusted, options) as opened:
        yield opened


def ads(opened: grpc.aio.Channel, token: str, method: str = DELTA_METHOD) -> Any:
    """Open an ADS stream of raw messages."""
    call: Any = opened.stream_stream(f"/{ADS_SERVICE}/{method}")
    return call(metadata=(("authorization", token),))


def attackers_stream(plane: ControlPlane) -> AnyStream:
    """Return what the server has of the attacker's stream."""
    return plane.server.envoys.fleet._gateways[GATEWAY].streams["evil"]


def requested_bytes(plane: ControlPlane) -> int:
    data_plane = plane.server.envoys.fleet._gateways.get(GATEWAY)
    stream = data_plane.streams.get("evil") if data_plane else None
    return stream.dialogue.conversation.requested_bytes if stream else 0


def subscriptions(stream: AnyStream) -> dict[str, Subscription]:
    return stream.dialogue.conversation._types


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    """Return the status of a call and its message."""
    return await call.code(), await call.details()


async def assert_other_gateway_is_served(plane: ControlPlane) -> None:
    """Serve an Envoy of another Gateway."""
    cluster = XdsResource.make(CLUSTER_TYPE_URL, "web", b"cluster")
    plane.server.envoys.publish(OTHER, ResourceSet([cluster]))
    async with channel(plane) as opened:
        call = ads(opened, f"good:pod-1@{OTHER}")
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER_TYPE_URL)
        await call.write(request.SerializeToString())
        response = discovery_pb2.DeltaDiscoveryResponse.FromString(await call.read())
        assert [resource.name for resource in response.resources] == ["web"]
        call.cancel()


@pytest.mark.parametrize("delta", [True, False])
async def test_made_up_types_are_ignored(plane: ControlPlane, delta: bool) -> None:
    """60 types that do not exist, with many names: nothing of them is kept."""
    async with channel(plane) as opened:
        call = ads(opened, ATTACKER, DELTA_METHOD if delta else SOTW_METHOD)
        for number in range(60):
            names = [f"name-{number}-{index}" for index in range(1000)]
            url = f"type.googleapis.com/evil.Type{number}"
            request = (
                DeltaStream.Message(type_url=url, resource_names_subscribe=names)
                if delta
                else SotwStream.Message(type_url=url, resource_names=names)
            )
            await call.write(request.SerializeToString())
        known = CLUSTER_TYPE_URL
        await call.write(
            (DeltaStream.Message if delta else SotwStream.Message)(
                type_url=known
            ).SerializeToString()
        )
        await until(lambda: known in subscriptions(attackers_stream(plane)))
        assert subscriptions(attackers_stream(plane)).keys() == {known}
        await assert_other_gateway_is_served(plane)
        call.cancel()


@pytest.mark.parametrize("delta", [True, False])
async def test_made_up_names_end_the_stream_and_free_its_memory(
    plane: ControlPlane, delta: bool
) -> None:
    """Many names of every known type: the stream ends before its state exceeds the limit, and
    nothing of the stream is kept, although its client reads nothing."""
    with structlog.testing.capture_logs() as logs:
        await _request_made_up_names(plane, logs, delta=delta)
    await assert_other_gateway_is_served(plane)


async def _request_made_up_names(plane: ControlPlane, logs: list[Any], *, delta: bool) -> None:
    async with channel(plane) as opened:
        call = ads(opened, ATTACKER, DELTA_METHOD if delta else SOTW_METHOD)
        state: weakref.ref[Any] | None = None
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for number, url in enumerate(ADD_ORDER):
                names = [f"name-{number}-{index}" for index in range(MANY)]
                request = (
                    DeltaStream.Message(type_url=url, resource_names_subscribe=names)
                    if delta
                    else SotwStream.Message(type_url=url, resource_names=names)
                )
                await call.write(request.SerializeToString())
                if state is None:
                    await until(lambda: bool(requested_bytes(plane)))
                    conversation = attackers_stream(plane).dialogue.conversation
                    assert conversation.requested_bytes > MANY * agent_limits.ENTRY_BYTES
                    assert conversation.requested_bytes < agent_limits.MAX_SUBSCRIPTION_BYTES
                    state = weakref.ref(conversation)
                    del conversation
        assert state is not None
        # gRPC's client reports an error of its own for a write to a call that has ended.
        await until(lambda: any(log.get("reason") == TOO_MANY_NAMES for log in logs))
        gc.collect()
        await until(lambda: state() is None)


def empty_parts(field: int, size: int) -> bytes:
    """Return a message of empty parts: each takes two bytes, and many more once parsed."""
    return bytes([field << 3 | 2, 0]) * (size // 2)


@pytest.mark.parametrize(
    ("request_bytes", "reason"),
    [
        (empty_parts(3, 30 << 20), TOO_MANY_NAMES),
        (empty_parts(5, 30 << 20), TOO_MANY_NAMES),
        (empty_parts(8, 30 << 20), TOO_LARGE_HEAD),
        (
            DeltaStream.Message(
                node=base_pb2.Node(client_features=["x" * 1000] * 2000)
            ).SerializeToString(),
            TOO_LARGE_HEAD,
        ),
        (DeltaStream.Message(response_nonce="1" * (2 << 20)).SerializeToString(), TOO_LARGE_HEAD),
        (
            DeltaStream.Message(
                error_detail=status_pb2.Status(message="x" * (2 << 20))
            ).SerializeToString(),
            TOO_LARGE_HEAD,
        ),
        (b"\x1a\xff\xff\xff", "the message is not valid protobuf: truncated message"),
    ],
    ids=["names", "versions", "locators", "node", "nonce", "error", "invalid"],
)
async def test_oversized_ads_request_is_refused_before_it_is_parsed(
    plane: ControlPlane, request_bytes: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message that would take up to 1.5 GB once parsed."""
    parsed: list[object] = []
    monkeypatch.setattr(DeltaStream, "receive", lambda _stream, message: parsed.append(message))
    async with channel(plane) as opened:
        call = ads(opened, ATTACKER)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call.write(request_bytes)
        assert await refusal(call) == (grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
    assert not parsed


def test_names_and_versions_are_counted_once_and_given_back() -> None:
    state = Subscription(ENDPOINTS_TYPE_URL)
    state.subscribe(["a", "b"], {"old": "v" * 30})
    counted = state.requested_bytes
    assert counted == 3 * agent_limits.ENTRY_BYTES + len("abold") + 30
    state.subscribe(["b", "a"], {})
    assert state.requested_bytes == counted
    state.unsubscribe(["a", "b", "made-up"])
    assert state.requested_bytes == counted - 2 * agent_limits.ENTRY_BYTES - 2
    assert "made-up" not in state._dirty


async def test_ads_texts_and_lists_are_cut(plane: ControlPlane) -> None:
    """Node and health of an Envoy's agent, as large as a message may be."""
    node = base_pb2.Node(
        user_agent_name="envoy",
        user_agent_version="9" * 100_000,
        client_features=[f"{number:04}" * 10 for number in range(5000)],
        extensions=[base_pb2.Extension(name=f"{number:04}" * 10) for number in range(5000)],
    )
    first = DeltaStream.Message(type_url=CLUSTER_TYPE_URL, node=node)
    unready = {"cluster" * 100: {"server" * 100: "reason" * 1000}}
    async with channel(plane) as opened:
        call = ads(opened, ATTACKER)
        await call.write(first.SerializeToString())
        await call.write(health_request("sick " * 10_000, unready).SerializeToString())
        fleet = plane.server.envoys
        await until(lambda: any(one.unhealthy for one in fleet.report(GATEWAY).instances))
        (report,) = fleet.report(GATEWAY).instances
        assert len(report.proxy) == agent_limits.MAX_TEXT_CHARACTERS
        assert len(report.modules) == len(report.features) == agent_limits.MAX_LISTED
        conversation = attackers_stream(plane).dialogue.conversation
        assert len(conversation.unhealthy) == agent_limits.MAX_ERROR_CHARACTERS
        for cluster, servers in conversation.unready_servers.items():
            texts = (cluster, *servers, *servers.values())
            assert max(map(len, texts)) <= agent_limits.MAX_TEXT_CHARACTERS
        call.cancel()


async def test_nginx_agent_texts_and_lists_are_cut(plane: ControlPlane) -> None:
    """Everything that NGINX Agent v3 may report, as large as a message may be."""
    plane.server.publish(GATEWAY, FileSet([File.make("gatehouse/http.conf", "own")]))
    resource = nginx_agent_resource()
    nginx = resource.instances[0]
    nginx.instance_meta.version = "9" * 1_000_000
    runtime = nginx.instance_runtime.nginx_runtime_info
    runtime.dynamic_modules.extend(f"module-{number}" * 40 for number in range(5000))
    runtime.loadable_modules.extend(f"module-{number}" for number in range(5000))
    features = (f"feature-{number}" for number in range(5000))
    nginx.instance_config.agent_config.features.extend(features)
    async with wire_agent(plane, ATTACKER) as agent:
        await agent.create_connection(resource)
        call = agent.subscribe()
        request = await call.read()
        correlation = request.message_meta.correlation_id
        await call.write(answer(correlation, "broken " * 100_000))
        report = await plane.until(lambda report: bool(report.error))
        (instance,) = report.instances
        assert len(instance.error) == agent_limits.MAX_ERROR_CHARACTERS
        assert len(instance.proxy) == agent_limits.MAX_TEXT_CHARACTERS
        assert len(instance.modules) == len(instance.features) == agent_limits.MAX_LISTED
        assert max(map(len, instance.modules)) == agent_limits.MAX_TEXT_CHARACTERS
        await agent.update_overview(*(f"/etc/{number}" for number in range(10_000)))
        await agent.send_served_version("v" * 1_000_000)
        session = plane.server._fleet._gateways[GATEWAY].peers["evil"].session
        assert session._reported_version == ""
        assert len(session.unmanaged) <= agent_limits.MAX_UNMANAGED_FILES
        call.cancel()


UNARY = {
    "connection": "/mpi.v1.CommandService/CreateConnection",
    "status": "/mpi.v1.CommandService/UpdateDataPlaneStatus",
    "overview": "/mpi.v1.FileService/UpdateOverview",
    "file": "/mpi.v1.FileService/GetFile",
}
STREAMS = {
    "v3": "/mpi.v1.CommandService/Subscribe",
    "v3-upload": "/mpi.v1.FileService/UpdateFileStream",
    "v2": "/f5.nginx.agent.sdk.Commander/CommandChannel",
    "v2-upload": "/f5.nginx.agent.sdk.Commander/Upload",
}
TOO_LARGE = f"the message has more than {agent_limits.MAX_MESSAGE_BYTES} bytes"


@pytest.mark.parametrize("path", UNARY.values(), ids=UNARY)
async def test_oversized_request_of_an_nginx_agent_is_refused(
    plane: ControlPlane, path: str
) -> None:
    """Only a known caller's request is looked at, and not if it is too large."""
    message = bytes(agent_limits.MAX_MESSAGE_BYTES + 1)
    async with channel(plane) as opened:
        method: Any = opened.unary_unary(path)
        for token, code in (
            (ATTACKER, grpc.StatusCode.RESOURCE_EXHAUSTED),
            ("unknown", grpc.StatusCode.UNAUTHENTICATED),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await method(message, metadata=(("authorization", token),))
            assert refused.value.code() is code
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await method(b"\xff", metadata=(("authorization", ATTACKER),))
        assert refused.value.details() == "the message is not valid protobuf"


@pytest.mark.parametrize("path", STREAMS.values(), ids=STREAMS)
async def test_oversized_message_ends_the_stream_of_an_nginx_agent(
    plane: ControlPlane, path: str
) -> None:
    async with channel(plane) as opened:
        method: Any = opened.stream_stream(path)
        call = method(metadata=(("authorization", ATTACKER),))
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call.write(bytes(agent_limits.MAX_MESSAGE_BYTES + 1))
        assert await refusal(call) == (grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_LARGE)


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
    async with channel(plane) as opened:
        method: Any = opened.stream_stream(path)
        for most in (agent_limits.MAX_REQUEST_BURST, agent_limits.MAX_REQUESTS_PER_SECOND):
            call = method(metadata=(("authorization", ATTACKER),))
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                for _ in range(most):
                    await call.write(message)
                assert not call.done()
                for _ in range(2):
                    await call.write(message)
            exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
            assert await refusal(call) == (exhausted, call_rates.REQUEST_LIMIT.reason)
            now[0] += 1
        await assert_other_gateway_is_served(plane)


@pytest.mark.parametrize("delta", [True, False])
async def test_openings_of_ads_streams_are_limited(
    now: list[float], tmp_path: Path, delta: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = msgspec.structs.replace(call_rates.CALL_LIMIT, burst=30)
    monkeypatch.setattr(call_rates, "CALL_LIMIT", fewer)
    plane = ControlPlane(tmp_path)
    await plane.start()
    async with channel(plane) as opened:
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
    await plane.server.stop(0.1)


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


def description_chunks() -> list[bytes]:
    """Return the messages of an upload whose main file describes an NGINX."""
    about = Register("id", "nginx/1.31.3", main_file="/etc/nginx/nginx.conf")
    main = main_file.build(about, FileSet([]))
    packed = payload.archive(FileSet([]), main)
    document = payload.document(FileSet([]), packed, main, about)
    head = messages.build_meta("upload")
    chunks = payload.payload_chunks(document, head)
    return [chunk.SerializeToString() for chunk in chunks]


async def test_one_upload_of_an_instance_is_kept_at_a_time(plane: ControlPlane) -> None:
    """Agent v2, with uploads at the same time: one is kept in memory, others are only read."""
    chunks = description_chunks()
    identity = Identity(GATEWAY, "evil")
    async with channel(plane) as opened:
        method: Any = opened.stream_unary(STREAMS["v2-upload"])
        metadata = (("authorization", ATTACKER),)
        first = method(metadata=metadata)
        await first.write(chunks[0])
        await first.wait_for_connection()
        await method(iter(chunks), metadata=metadata)
        assert not plane.server._fleet.knows(identity)
        for chunk in chunks[1:]:
            await first.write(chunk)
        await first.done_writing()
        await first
        assert plane.server._fleet.knows(identity)
