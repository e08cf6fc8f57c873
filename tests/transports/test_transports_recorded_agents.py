"""The fake agents send what the real NGINX Agents send: the same fields in the same order.

Both are recorded by a proxy in front of the control plane. Programs: see :mod:`fakes.peers`.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane, answering
from fakes.agent_v2 import AgentV2, Config, channel
from fakes.agent_wire import WireAgent, nginx_agent_resource
from fakes.durations import last
from fakes.field_agent import FieldAgent, program
from fakes.loopback import free_port
from fakes.peer_differences import UNREAD_AGENT_FIELDS
from fakes.recording_proxy import RecordedMessage, RecordingProxy, field_values
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.wire.agent_sdk import commander_pb2 as sdk
from gatehouse.wire.mpi.v1 import command_pb2, files_pb2

REJECTED = "not_a_directive on"
SETS = [answering(8080, text) for text in ("one", "two", "three")]
BAD = answering(8080, f"one; {REJECTED}")

ASYNCHRONOUS = ("UpdateDataPlane", "CommandChannel dataplane_status", "Stream")
"""Messages that agents send on their own account, at any time."""


STOPPED = tuple(f"/mpi.v1.CommandService/UpdateDataPlane{kind}" for kind in ("Status", "Health"))
"""Methods that report a stopped NGINX."""


class SentMessage(msgspec.Struct, frozen=True):
    """A message of an agent."""

    kind: str
    """RPC, and for messages of a stream the content."""
    fields: dict[str, frozenset[str]]
    """Forms of the values, by path."""


def form(value: Any) -> str:
    """Return the form of a value, for fields whose values differ between any two agents."""
    if not isinstance(value, str):
        return type(value).__name__
    forms = {
        "uuid": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        "hexadecimal digest": r"[0-9a-f]{64}",
        "base64 digest": r"[A-Za-z0-9+/]{43}=",
        "permissions": r"0[0-7]{3}",
        "absolute path": r"/.*",
        "version": r"v?\d+\.\d+\.\d+",
    }
    return next((name for name, form in forms.items() if re.fullmatch(form, value)), "text")


def parsed_v3(message: RecordedMessage) -> SentMessage:
    name = message.method.rpartition("/")[2]
    if name == "Subscribe":
        response = command_pb2.DataPlaneResponse.FromString(message.content)
        status = response.command_response.status
        name += f" {type(response.command_response).CommandStatus.Name(status)}"
        return SentMessage(name, field_values(response, form))
    service = files_pb2 if "FileService" in message.method else command_pb2
    request = getattr(service, f"{name}Request").FromString(message.content)
    return SentMessage(name, field_values(request, form))


def parsed_v2(message: RecordedMessage) -> SentMessage:
    name = message.method.rpartition("/")[2]
    if name == "CommandChannel":
        command = sdk.Command.FromString(message.content)
        response = command.nginx_config_response.status
        status = f" {type(response).CommandStatus.Name(response.status)}" if response.status else ""
        return SentMessage(
            f"{name} {command.WhichOneof('data')}{status}", field_values(command, form)
        )
    if name == "Upload":
        chunk = sdk.DataChunk.FromString(message.content)
        return SentMessage(f"{name} {chunk.WhichOneof('chunk')}", field_values(chunk, form))
    if name == "Download":
        return SentMessage(
            name, field_values(sdk.DownloadRequest.FromString(message.content), form)
        )
    return SentMessage(name, {})


def v2_of(proxy: RecordingProxy) -> list[SentMessage]:
    return [parsed_v2(message) for message in proxy.sent()]


PARSED: dict[int, Callable[[RecordedMessage], SentMessage]] = {2: parsed_v2, 3: parsed_v3}


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        async with ControlPlane(Path(directory)) as plane:
            yield plane


async def exchange(plane: ControlPlane) -> None:
    """Have the agent apply a first configuration and a change, reject one, and apply another."""
    for file_set in (*SETS[:2], BAD, SETS[2]):
        plane.server.publish(GATEWAY, file_set)
        if file_set is BAD:
            await plane.until(lambda report: REJECTED.split()[0] in report.error)
        else:
            await plane.until(lambda report: report.programmed)
        # The real agents send their last messages about a configuration after its result.
        await last(2)


def is_unhealthy(report: DataPlaneReport) -> bool:
    return any("NGINX is not healthy" in instance.unhealthy for instance in report.instances)


async def run_real(plane: ControlPlane, proxy: RecordingProxy, version: int) -> None:
    environment = plane.environment(plane.directory)
    environment["NGINX_AGENT_COMMAND_SERVER_PORT"] = str(proxy.port)
    agent = FieldAgent(plane.directory / "real", environment, free_port(), version)
    async with agent.running():
        await exchange(plane)
        if version == 2:
            # The agent reports its details some seconds after a change, at any time.
            await patience.until(
                lambda: any("dataplane_status.details" in sent.fields for sent in v2_of(proxy))
            )
        else:
            before = len(proxy.sent())
            await agent.kill("nginx")
            await plane.until(is_unhealthy)
            await agent.end_workers()
            # The agent reports the missing processes in several messages, at any time.
            await patience.until(lambda: {*STOPPED} <= {m.method for m in proxy.sent()[before:]})


async def run_fake_v3(plane: ControlPlane, proxy: RecordingProxy) -> None:
    async with channel(proxy.port, plane.cert, "control.plane") as connection:
        agent = WireAgent(connection, plane.token.read_text())

        def error(version: str) -> str:
            return f'unknown directive "{REJECTED}"' if version == BAD.version else ""

        async with agent.serving("/etc/nginx/nginx.conf", error):
            await exchange(plane)
            await agent.update_status(nginx_agent_resource(pid=0))
            await agent.send_health("process is not running", "INSTANCE_HEALTH_STATUS_UNHEALTHY")
            await plane.until(is_unhealthy)


async def run_fake_v2(plane: ControlPlane, proxy: RecordingProxy) -> None:
    async def apply(config: Config) -> str:
        bad = config["config_data"]["checksum"] == BAD.version
        return f"Config apply failed (write): {REJECTED}" if bad else ""

    async with channel(proxy.port, plane.cert, "control.plane") as connection:
        agent = AgentV2(connection, plane.token.read_text(), apply)
        agent.configuration = lambda: {"action": 4}
        async with agent.connected():
            await exchange(plane)
            status = sdk.NginxConfigStatus.Status.OK
            applied = {"correlation_id": agent.apply_ids[0], "status": status}
            before = len(proxy.sent())
            await agent.send_report(details=True, message="config applied successfully", **applied)
            await patience.until(lambda: len(proxy.sent()) > before)


Run = Callable[[ControlPlane, RecordingProxy], Awaitable[None]]


async def recorded(
    plane: ControlPlane, run: Run, version: int
) -> tuple[list[SentMessage], dict[str, set[str]]]:
    """Return what an agent sends, and the names of its metadata by method."""
    proxy = RecordingProxy(plane.cert, plane.key, plane.port)
    async with proxy.running():
        await run(plane, proxy)
    await plane.restart()
    return [PARSED[version](message) for message in proxy.sent()], proxy.metadata


def by_kind(messages: list[SentMessage]) -> dict[str, dict[str, set[str]]]:
    result: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for message in messages:
        fields = result[message.kind]
        for path, forms in message.fields.items():
            fields[path] |= forms
    return result


AFTER_APPLY = ("Subscribe COMMAND_STATUS_OK", "UpdateOverview")
"""Messages after an apply. The real agent sends them from two threads, in either order."""


def order(messages: list[SentMessage]) -> list[str]:
    """Return the kinds of messages in order, successive ones of a kind once."""
    kinds = (m.kind for m in messages if not m.kind.startswith(ASYNCHRONOUS))
    result: list[str] = []
    for concurrent, group in groupby(kinds, AFTER_APPLY.__contains__):
        result += sorted(set(group)) if concurrent else [kind for kind, _ in groupby(group)]
    return without_repeated_applies(result)


APPLY = ["Download", "Upload header", "Upload data", "CommandChannel nginx_config_response CMD_OK"]
"""Messages of agent v2 about one configuration."""


def without_repeated_applies(kinds: list[str]) -> list[str]:
    """Return the kinds with successive applies once: agent v2 gets a configuration again if it
    reports late that it has it."""
    result: list[str] = []
    for kind in kinds:
        result.append(kind)
        if result[-8:] == APPLY * 2:
            del result[-4:]
    return result


def differences(real: list[SentMessage], fake: list[SentMessage]) -> Iterator[str]:
    fields, faked = by_kind(real), by_kind(fake)
    if (status := fields.get("UpdateDataPlaneStatus")) is not None:
        # Both describe the same resource. What a status has depends on the moment of its sending.
        status |= fields["CreateConnection"]
    for kind in fields.keys() - faked.keys():
        yield f"{kind}: only the real agent sends it"
    for kind, sent in faked.items():
        if kind not in fields:
            yield f"{kind}: only the fake sends it"
            continue
        for path, forms in sent.items():
            if path not in fields[kind]:
                yield f"{kind} {path}: only the fake sends it"
            elif not forms <= fields[kind][path]:
                yield f"{kind} {path}: {forms}, of the real agent {fields[kind][path]}"
        for path in fields[kind].keys() - sent.keys():
            if not f"{kind} {path}".startswith(UNREAD_AGENT_FIELDS.values):
                yield f"{kind} {path}: only the real agent sends it"


def test_deviations_of_a_fake_are_reported() -> None:
    real = [SentMessage("A", {"x": frozenset({"uuid"}), "y": frozenset()}), SentMessage("B", {})]
    fake = [SentMessage("C", {}), SentMessage("A", {"x": frozenset({"text"}), "z": frozenset()})]
    assert sorted(differences(real, real)) == []
    assert [line.partition(":")[0] for line in differences(real, fake)] == [
        "B", "C", "A x", "A z", "A y",
    ]  # fmt: skip
    assert (order(real), order(fake)) == (["A", "B"], ["C", "A"])
    assert without_repeated_applies(["A", *APPLY, *APPLY, *APPLY, "B"]) == ["A", *APPLY, "B"]
    either = [SentMessage(kind, {}) for kind in AFTER_APPLY]
    assert order([*real, *either]) == order([*real, *reversed(either)]) == ["A", "B", *AFTER_APPLY]


@pytest.mark.process
@pytest.mark.long
@pytest.mark.peers
@pytest.mark.parametrize(
    ("version", "fake"), [(3, run_fake_v3), (2, run_fake_v2)], ids=["v3", "v2"]
)
async def test_fake_agent_sends_fields_in_order_of_real_agent(
    plane: ControlPlane, version: int, fake: Run
) -> None:
    program(version)
    real, real_metadata = await recorded(plane, lambda p, r: run_real(p, r, version), version)
    faked, fake_metadata = await recorded(plane, fake, version)
    assert not (deviations := list(differences(real, faked))), "\n".join(deviations)
    assert order(faked) == order(real)
    names = {method: names - {"user-agent"} for method, names in real_metadata.items()}
    assert {method: names[method] for method in fake_metadata} == {
        method: sent - {"user-agent"} for method, sent in fake_metadata.items()
    }
