"""Agent v2 on the wire: what it is sent, what it says, and what it cannot do to others."""

from __future__ import annotations

import contextlib
import random
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc.aio
import pytest

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane, error_of
from fakes.agent_v2 import NGINX_ID, AgentV2, Config, channel, metadata, unzip
from fakes.patience import until
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents.call_auth import CallAuthorizer
from gatehouse.transports.agents.fleet import AgentFleet
from gatehouse.transports.agents.fleet_events import FleetEvents
from gatehouse.transports.agents.session import ApplyResponse, Elapsed, Health, Register
from gatehouse.transports.agents.stream import Apply
from gatehouse.transports.agents.token_auth import Identity
from gatehouse.transports.commander import main_file, messages, payload
from gatehouse.transports.commander.services import CommanderServices
from gatehouse.wire.agent_sdk import commander_pb2 as sdk

ABOUT = Register("id", "nginx/1.27.4", ("http_auth_request_module",), main_file="/opt/n/main.conf")
STATES = sdk.CommandStatusResponse.CommandStatus
OUTCOMES = sdk.NginxConfigStatus.Status


def bundle(text: str, *more: File) -> FileSet:
    key = File.make("gatehouse/tls/k.key", "key", secret=True)
    return FileSet([File.make("gatehouse/http.conf", text), key, *more])


@pytest.fixture
async def control_plane(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[ControlPlane]:
    async with ControlPlane(
        tmp_path, apply_deadline=getattr(request, "param", patience.SECONDS)
    ) as plane:
        yield plane


class Seen:
    """Keeps what was applied; ``answers`` are given in turn, then success."""

    def __init__(self, *answers: str) -> None:
        self.configs: list[Config] = []
        self._answers = list(answers)

    async def apply(self, config: Config) -> str:
        self.configs.append(config)
        return self._answers.pop(0) if self._answers else ""

    @property
    def texts(self) -> list[str]:
        return [
            unzip(config["zconfig"])["gatehouse/http.conf"][0].decode() for config in self.configs
        ]


class Known(CallAuthorizer):
    """Lets everybody in as one instance."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def identify(self, context: object) -> Identity:
        return self._identity

    async def count(self, context: object, identity: Identity, size: int = 0) -> None:
        """Do not limit the calls."""


@contextlib.asynccontextmanager
async def agent(
    plane: ControlPlane, configs: Seen, token: str = "good:pod-1", **more: bool
) -> AsyncIterator[AgentV2]:
    async with channel(plane.port, plane.cert, "control.plane") as grpc_channel:
        result = AgentV2(grpc_channel, token, configs.apply)
        async with result.connected(**more):
            yield result


@pytest.mark.parametrize(
    ("status", "message", "error", "expected"),
    [
        (STATES.CMD_OK, "config applied successfully", "", ""),
        (STATES.CMD_OK, messages.STILL_VALIDATING, "", None),
        (STATES.CMD_UNKNOWN, "", "", None),
        (STATES.CMD_ERROR, "m", "Config apply failed (write): x", "Config apply failed (write): x"),
        (STATES.CMD_ERROR, "m", "", "m"),
        (STATES.CMD_ERROR, "", "", "the agent gave no reason"),
    ],
)
def test_rejection_is_read_from_command_response(
    status: STATES, message: str, error: str, expected: str | None
) -> None:
    response = sdk.CommandStatusResponse(status=status, message=message, error=error)
    assert messages.commander_error(response) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (OUTCOMES.PENDING, []),
        (OUTCOMES.OK, [ApplyResponse("c")]),
        (OUTCOMES.ERROR, [ApplyResponse("c", "no such directive")]),
    ],
)
def test_apply_outcomes_are_read_from_dataplane_status(
    status: OUTCOMES, expected: list[ApplyResponse]
) -> None:
    report = sdk.DataplaneStatus()
    report.agent_activity_status.add(
        nginx_config_status=sdk.NginxConfigStatus(
            correlation_id="c", status=status, message="no such directive"
        )
    )
    events = messages.status_events(Register("id", "nginx/1.27.4"), report)
    assert [event for event in events if isinstance(event, ApplyResponse)] == expected


def health(nginx_id: str = "id", reason: str = "") -> sdk.NginxHealth:
    states = sdk.NginxHealth.NginxStatus
    state = states.DEGRADED if reason else states.ACTIVE
    return sdk.NginxHealth(nginx_id=nginx_id, nginx_status=state, degraded_reason=reason)


@pytest.mark.parametrize(
    ("healths", "problem"),
    [
        ([health()], ""),
        ([health(reason="zombie")], "NGINX is not healthy: zombie"),
        ([health("other", "zombie"), health()], ""),
        ([health("other")], "NGINX is not healthy: its agent finds no process"),
        ([], "NGINX is not healthy: its agent finds no process"),
    ],
)
def test_health_of_described_nginx_is_read_from_dataplane_status(
    healths: list[sdk.NginxHealth], problem: str
) -> None:
    report = sdk.DataplaneStatus(healths=healths)
    events = messages.status_events(Register("id", "nginx/1.27.4"), report)
    assert [*events] == [Health(problem)]


def test_degraded_nginx_that_was_not_described_before_counts_as_starting() -> None:
    nginx = sdk.NginxDetails(nginx_id="id", version="1.27.4", conf_path="/etc/nginx/nginx.conf")
    degraded = [health(reason="does not have enough children")]
    report = sdk.DataplaneStatus(details=[nginx], healths=degraded)
    about = messages.nginx_of_request(nginx)
    assert [*messages.status_events(Register("id", ""), report)] == [about, Health("")]
    problem = "NGINX is not healthy: does not have enough children"
    report = sdk.DataplaneStatus(healths=degraded)
    assert [*messages.status_events(about, report)] == [Health(problem)]


def test_workers_without_master_are_no_nginx() -> None:
    worker = sdk.NginxDetails(nginx_id="id", version="1.27.4", conf_path="/etc/nginx/nginx.conf")
    other = sdk.NginxDetails(nginx_id="other", version="1.27.4", conf_path="/opt/nginx.conf")
    problem = "NGINX is not healthy: it has no master process"
    report = sdk.DataplaneStatus(details=[worker, worker], healths=[health()])
    assert [*messages.status_events(Register("id", ""), report)] == [Health(problem)]
    request = sdk.AgentConnectRequest(details=[worker, worker])
    assert messages.registered(request).problem == problem
    both = sdk.AgentConnectRequest(details=[worker, other])
    assert messages.registered(both).problem == ""


def test_registration_without_processes_names_the_problem() -> None:
    about = messages.registered(sdk.AgentConnectRequest())
    assert (about.nginx_id, about.problem) == (
        "", "NGINX is not healthy: its agent finds no process",
    )  # fmt: skip


def test_nginx_details_are_read_with_modules_and_features() -> None:
    details = sdk.NginxDetails(
        nginx_id="id",
        version="1.27.4",
        conf_path="/opt/n/main.conf",
        runtime_modules=["http_ssl_module"],
        configure_args=["with-http_ssl_module", "add-module=build/nginx-auth-jwt-0.14.2"],
    )
    info = messages.nginx_of_request(details)
    assert (info.nginx_id, info.proxy, info.main_file) == ("id", "nginx/1.27.4", details.conf_path)
    assert info.modules == ("http_ssl_module", "nginx-auth-jwt-0.14.2")
    assert info.features == frozenset()
    assert info.loadable_modules == ()
    details.conf_path = ""
    assert messages.nginx_of_request(details).nginx_id == ""


@pytest.mark.parametrize(
    ("argument", "loaded"),
    [("with-stream=dynamic", True), ("--with-stream=dynamic", True), ("with-stream", False)],
)
def test_main_file_loads_stream_module_when_it_is_dynamic(argument: str, loaded: bool) -> None:
    details = sdk.NginxDetails(
        nginx_id="id",
        version="1.22.1",
        conf_path="/etc/nginx/nginx.conf",
        loadable_modules=["ngx_stream_geoip_module", "ngx_stream_module"],
        configure_args=[argument],
    )
    about = messages.nginx_of_request(details)
    stream = FileSet([File.make("gatehouse/stream.conf", "")])
    text = main_file.build(about, stream).content.decode()
    assert ("load_module modules/ngx_stream_module.so;" in text) == loaded
    assert "geoip" not in text.partition("\n")[2]
    assert "load_module" not in main_file.build(about, bundle("")).content.decode()


@pytest.mark.parametrize(
    ("proxy", "paths", "present", "absent"),
    [
        ("nginx/1.27.4", ["gatehouse/http.conf"], ["keepalive_min_timeout"], ["stream {"]),
        ("nginx/1.27.3", ["gatehouse/http.conf"], [], ["keepalive_min_timeout"]),
        ("nginx/1.27.4", ["gatehouse/stream.conf"], ["stream {"], ["include gatehouse/http.conf"]),
        ("nginx/1.27.4", ["gatehouse/main.conf"], ["\ninclude gatehouse/main.conf;"], []),
        ("nginx", ["gatehouse/http.conf"], ["include gatehouse/http.conf;"], ["keepalive_min"]),
    ],
)
def test_main_file_includes_existing_files(
    proxy: str, paths: list[str], present: list[str], absent: list[str]
) -> None:
    about = Register("id", proxy, main_file="/etc/nginx/nginx.conf")
    text = main_file.build(about, FileSet(File.make(path, "") for path in paths)).content.decode()
    assert all(path in text for path in present), text
    assert not any(path in text for path in absent), text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (main_file.build(ABOUT, bundle("")).content.decode(), ABOUT),
        ("events {}\n", None),
        ("# gatehouse: {}\n", None),
        ('# gatehouse: {"type":"Register","nginx_id":"id","proxy":"nginx/1.27.4"}\n', None),
    ],
)
def test_configuration_names_its_target_nginx(text: str, expected: Register | None) -> None:
    assert main_file.read_description(text) == expected


def test_archives_of_equal_file_sets_are_equal_with_paths_and_modes() -> None:
    main = main_file.build(ABOUT, bundle(""))
    packed = payload.archive(bundle("x"), main)
    assert packed == payload.archive(bundle("x"), main)
    result = unzip({"contents": b64encode(packed.contents), "checksum": packed.checksum})
    assert {name: mode for name, (_, mode) in result.items()} == {
        "main.conf": 0o644,
        "gatehouse/http.conf": 0o644,
        "gatehouse/tls/k.key": 0o600,
    }


def test_uploaded_document_names_its_target_nginx() -> None:
    file_set = bundle("x")
    main = main_file.build(ABOUT, file_set)
    sent = payload.document(file_set, payload.archive(file_set, main), main, ABOUT)
    assert main_file.read_description(payload.uploaded_head(sent)) == ABOUT


@pytest.mark.parametrize("uploaded", [b"", b"{}", b"[", b'{"zconfig":{"contents":"AAAA"}}'])
def test_malformed_upload_is_ignored(uploaded: bytes) -> None:
    assert payload.uploaded_head(uploaded) == ""


async def test_file_set_is_uploaded_with_main_file_and_confirmed(
    control_plane: ControlPlane,
) -> None:
    configs = Seen()
    noise = File.make("gatehouse/noise", random.Random(1).randbytes(3 << 20))
    file_set = bundle("one", noise)
    async with agent(control_plane, configs) as result:
        report = await control_plane.programmed(file_set)
        (instance,) = report.instances
        assert (instance.instance, instance.proxy) == ("pod-1", "nginx/1.27.4")
        assert instance.features == frozenset()
        (config,) = configs.configs
        files = unzip(config["zconfig"])
        assert files["gatehouse/noise"][0] == noise.content
        assert b"include gatehouse/http.conf;" in files["nginx.conf"][0]
        assert config["zconfig"]["root_directory"] == "/etc/nginx"
        assert (config["action"], config["config_data"]["nginx_id"]) == (1, NGINX_ID)
        mapped = {
            (directory["name"], file["name"])
            for directory in config["directory_map"]["directories"]
            for file in directory["files"]
        }
        assert ("/etc/nginx", "nginx.conf") in mapped
        assert ("/etc/nginx/gatehouse/tls", "k.key") in mapped
        # In pieces, after one header.
        assert result.received[0] > 4


async def test_registration_response_comes_first_and_disables_uploads(
    control_plane: ControlPlane,
) -> None:
    control_plane.server.publish(GATEWAY, bundle("one"))
    async with agent(control_plane, Seen()) as result:
        await until(lambda: len(result.commands) >= 2)
        response = result.commands[0].agent_connect_response
        assert response.status.statusCode == sdk.AgentConnectStatus.StatusCode.CONNECT_OK
        assert not response.agent_config.configs.configs


async def test_last_of_quick_versions_is_applied(
    control_plane: ControlPlane,
) -> None:
    configs = Seen()
    async with agent(control_plane, configs):
        for number in range(20):
            control_plane.server.publish(GATEWAY, bundle(str(number)))
        await control_plane.programmed(bundle("19"))
        assert configs.texts[-1] == "19"
        assert len(configs.texts) <= 3
        await control_plane.programmed(bundle("19"))
        assert configs.texts.count("19") == 1


async def test_rejection_is_reported_with_agent_message_and_retried(
    control_plane: ControlPlane,
) -> None:
    configs = Seen("Config apply failed (write): no such directive")
    control_plane.server.publish(GATEWAY, bundle("one"))
    async with agent(control_plane, configs):
        report = await control_plane.until(lambda report: bool(report.error))
        assert report.error == "pod-1: Config apply failed (write): no such directive"
        await control_plane.until(lambda report: report.programmed)
        assert configs.texts == ["one", "one"]


@pytest.mark.parametrize("control_plane", [1.0], indirect=True)
async def test_silent_agent_does_not_delay_other_agents(control_plane: ControlPlane) -> None:
    silent, quick = Seen(*["silent"] * 9), Seen()
    async with agent(control_plane, silent, "good:pod-2"), agent(control_plane, quick):
        control_plane.server.publish(GATEWAY, bundle("one"))
        await until(lambda: quick.texts == ["one"])
        report = await control_plane.until(lambda report: bool(error_of(report, "pod-2")))
        assert error_of(report, "pod-2") == "no response within 1 s"
        await until(lambda: len(silent.texts) == 2)


async def test_long_configuration_test_is_confirmed_by_status_report(
    control_plane: ControlPlane,
) -> None:
    configs = Seen("silent")
    async with agent(control_plane, configs) as result:
        control_plane.server.publish(GATEWAY, bundle("one"))
        await until(lambda: bool(configs.configs))
        (apply_id,) = result.apply_ids
        await result.answer(apply_id, message=messages.STILL_VALIDATING)
        await result.send_report(correlation_id=apply_id, status=OUTCOMES.PENDING)
        # The control plane reads messages in their order.
        degraded = sdk.DataplaneStatus(healths=[health(NGINX_ID, "zombie")])
        await result.call.write(sdk.Command(meta=metadata("m"), dataplane_status=degraded))
        report = await control_plane.until(lambda report: "zombie" in report.unhealthy)
        assert [instance.confirmed for instance in report.instances] == [""]
        await result.send_report()
        await control_plane.until(lambda report: not report.unhealthy)
        await result.send_report(correlation_id=apply_id, status=OUTCOMES.OK)
        await control_plane.until(lambda report: report.programmed)
        assert len(result.apply_ids) == 1


@pytest.mark.parametrize("token", ["bad", ""])
async def test_invalid_token_is_denied(control_plane: ControlPlane, token: str) -> None:
    async with agent(control_plane, Seen(), token, registers=False) as result:
        assert await result.ended() == grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.aio.AioRpcError) as denied:
            await result.download("anything")
        assert denied.value.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_only_requested_agent_can_download(control_plane: ControlPlane) -> None:
    configs = Seen("silent")
    control_plane.server.publish("shop/other", bundle("theirs"))
    async with (
        agent(control_plane, configs) as requested_agent,
        agent(control_plane, Seen(), "good:pod-1@shop/other") as other,
        agent(control_plane, Seen(), "good:pod-3") as neighbour,
    ):
        control_plane.server.publish(GATEWAY, bundle("ours"))
        await until(lambda: bool(configs.configs))
        for stranger in (other, neighbour):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stranger.download(requested_agent.apply_ids[0])
            assert refused.value.code() == grpc.StatusCode.NOT_FOUND


async def test_ongoing_download_extends_deadline() -> None:
    now, identity = 0.0, Identity("ns/gw", "pod-1")
    fleet = AgentFleet(60.0, lambda: now, FleetEvents())
    fleet.publish("ns/gw", bundle("one", File.make("a", random.Random(1).randbytes(3 << 20))))
    fleet.on_connect(identity, ABOUT)
    stream = fleet.open(identity)
    assert stream is not None
    request = await stream.next()
    assert isinstance(request, Apply)
    services = CommanderServices(fleet, Known(identity))
    download = services._download(
        sdk.DownloadRequest(meta=messages.build_meta(request.correlation)).SerializeToString(),
        cast(Any, None),
    )
    pieces = 0
    async for _ in download:
        pieces, now = pieces + 1, now + 45.0
        fleet.receive(identity, Elapsed())
        assert fleet.report("ns/gw").error == ""
    assert pieces >= 3
    # It has all of it, and says nothing for longer than the deadline.
    now += 61.0
    fleet.receive(identity, Elapsed())
    assert fleet.report("ns/gw").error == "pod-1: no response within 60 s"
    fleet.publish("ns/gw", None)
    fleet.close(stream)


async def test_interrupted_download_is_retried(tmp_path: Path) -> None:
    # On a busy machine a download takes longer than the deadline of the other tests.
    async with ControlPlane(tmp_path) as control_plane:
        await _interrupt_download(control_plane)


async def _interrupt_download(control_plane: ControlPlane) -> None:
    configs = Seen()
    noise = File.make("gatehouse/noise", random.Random(1).randbytes(3 << 20))
    async with channel(control_plane.port, control_plane.cert, "control.plane") as grpc_channel:

        class Cut(AgentV2):
            cuts = 1

            async def chunks(self, message_id: str) -> AsyncIterator[sdk.DataChunk]:
                count = 0
                async for chunk in super().chunks(message_id):
                    count += 1
                    if self.cuts and count == 3:
                        self.cuts -= 1
                        return
                    yield chunk

        cut = Cut(grpc_channel, "good:pod-1", configs.apply)
        async with cut.connected():
            control_plane.server.publish(GATEWAY, bundle("one", noise))
            report = await control_plane.until(lambda report: bool(report.error))
            assert report.error == "pod-1: Config apply failed (download): checksum"
            await control_plane.until(lambda report: report.programmed)
            assert len(cut.apply_ids) == 2


async def test_reconnected_agent_is_recognized_without_new_apply(
    control_plane: ControlPlane,
) -> None:
    configs = Seen()
    async with channel(control_plane.port, control_plane.cert, "control.plane") as grpc_channel:
        result = AgentV2(grpc_channel, "good:pod-1", configs.apply)
        async with result.connected():
            await control_plane.programmed(bundle("one"))
        await control_plane.until(lambda report: not report.instances)
        async with result.connected():
            await control_plane.until(lambda report: report.programmed)
            assert configs.texts == ["one"]
            await control_plane.programmed(bundle("two"))
        # A new process may have lost what the old one wrote.
        async with AgentV2(grpc_channel, "good:pod-1", configs.apply).connected():
            await until(lambda: configs.texts == ["one", "two", "two"])
            await control_plane.until(lambda report: report.programmed)


async def test_metrics_stream_is_accepted_and_discarded(control_plane: ControlPlane) -> None:
    async with channel(control_plane.port, control_plane.cert, "control.plane") as grpc_channel:
        stream: Any = grpc_channel.stream_unary("/f5.nginx.agent.sdk.MetricsService/Stream")
        metadata = [("authorization", "good:pod-1")]
        assert await stream(iter([b"\x00anything", b""]), metadata=metadata) == b""
