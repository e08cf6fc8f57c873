"""Requests to NGINX Agent v3, which needs more than Gatehouse's agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes import patience
from fakes.agent_control_plane import ControlPlane, answering
from fakes.agent_wire import Request, WireAgent, answer, nginx_agent_resource, wire_agent
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents import session
from gatehouse.wire.mpi.v1 import command_pb2, files_pb2

MAIN = "/etc/nginx/nginx.conf"
OF_THE_PACKAGE = ("/etc/nginx/mime.types", "/etc/nginx/conf.d/default.conf")
UNHEALTHY, HEALTHY = "INSTANCE_HEALTH_STATUS_UNHEALTHY", "INSTANCE_HEALTH_STATUS_HEALTHY"

ONE, TWO = answering(8080, "one"), answering(8080, "two")


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with ControlPlane(tmp_path) as plane:
        yield plane


class Subscribed:
    """An agent's stream."""

    def __init__(self, agent: WireAgent) -> None:
        self._call = agent.subscribe()

    async def asked(self) -> Request:
        """Wait for the next request."""
        async with patience.limit():
            request: Request = await self._call.read()
        assert isinstance(request, Request)
        return request

    async def is_asked_nothing(self, seconds: float = 0.3) -> bool:
        """Wait for a request that must not come; the stream cannot be read after that."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._call.read(), seconds)
            return False
        return True

    async def answer(self, request: Request, error: str = "") -> None:
        """Answer finally."""
        await self._call.write(answer(request.message_meta.correlation_id, error))

    def end(self) -> None:
        """End it."""
        self._call.cancel()


def files(request: Request) -> dict[str, files_pb2.File]:
    overview = request.config_apply_request.overview
    return {file.file_meta.name: file for file in overview.files}


@pytest.fixture
async def agent(plane: ControlPlane) -> AsyncIterator[WireAgent]:
    async with wire_agent(plane, "good:pod-1") as result:
        yield result


async def served(plane: ControlPlane, agent: WireAgent) -> Subscribed:
    """Have the agent apply the first configuration."""
    plane.server.publish("shop/web", ONE)
    await agent.create_connection(nginx_agent_resource())
    stream = Subscribed(agent)
    await agent.update_overview(MAIN, *OF_THE_PACKAGE)
    await stream.answer(await stream.asked())
    await plane.until(lambda report: report.programmed)
    return stream


async def test_first_request_contains_main_file_and_marks_package_files_unmanaged(
    plane: ControlPlane, agent: WireAgent
) -> None:
    plane.server.publish("shop/web", ONE)
    await agent.create_connection(nginx_agent_resource())
    stream = Subscribed(agent)
    old = "/etc/nginx/gatehouse/servers/old.conf"
    await agent.update_overview(MAIN, *OF_THE_PACKAGE, old)
    request = await stream.asked()
    requested_files = files(request)
    assert [name for name, file in requested_files.items() if file.unmanaged] == sorted(
        OF_THE_PACKAGE
    )
    assert set(requested_files) == {
        MAIN,
        *OF_THE_PACKAGE,
        *(f"/etc/nginx/{path}" for path in ONE.files),
    }
    # The agent checks the permissions of all.
    assert {file.file_meta.permissions for file in requested_files.values()} == {"0644"}
    main = requested_files[MAIN].file_meta
    text = (await agent.get_file(main, request.message_meta.correlation_id)).decode()
    assert "include gatehouse/http.conf;" in text
    assert len(text) == main.size


async def test_main_file_loads_reported_module_when_l4_routes_need_it(
    plane: ControlPlane, agent: WireAgent
) -> None:
    resource = nginx_agent_resource()
    runtime = resource.instances[0].instance_runtime.nginx_runtime_info
    runtime.loadable_modules.append("ngx_stream_module")
    plane.server.publish("shop/web", FileSet([File.make("gatehouse/stream.conf", "")]))
    await agent.create_connection(resource)
    stream = Subscribed(agent)
    await agent.update_overview(MAIN)
    # A later report of the agent alone says nothing about its NGINX.
    await agent.update_status(nginx_agent_resource(nginx=False))
    request = await stream.asked()
    main = files(request)[MAIN].file_meta
    text = (await agent.get_file(main, request.message_meta.correlation_id)).decode()
    assert text.startswith("load_module modules/ngx_stream_module.so;\n")


async def test_file_paths_are_relative_to_main_configuration_directory(
    plane: ControlPlane, agent: WireAgent
) -> None:
    plane.server.publish("shop/web", ONE)
    await agent.create_connection(nginx_agent_resource(conf="/opt/n/conf/main.conf"))
    stream = Subscribed(agent)
    await agent.update_overview("/opt/n/conf/main.conf")
    request = await stream.asked()
    assert set(files(request)) == {
        "/opt/n/conf/main.conf",
        *(f"/opt/n/conf/{path}" for path in ONE.files),
    }


async def test_files_reported_before_nginx_are_used(plane: ControlPlane, agent: WireAgent) -> None:
    plane.server.publish("shop/web", ONE)
    await agent.create_connection(nginx_agent_resource(nginx=False))
    stream = Subscribed(agent)
    await agent.update_overview(MAIN, *OF_THE_PACKAGE)
    await agent.update_status(nginx_agent_resource())
    requested_files = files(await stream.asked())
    assert set(OF_THE_PACKAGE) < set(requested_files)


async def test_nginx_with_relative_configuration_path_gets_no_request(
    plane: ControlPlane, agent: WireAgent
) -> None:
    plane.server.publish("shop/web", ONE)
    await agent.create_connection(nginx_agent_resource(conf="nginx.conf"))
    stream = Subscribed(agent)
    await agent.update_overview("nginx.conf")
    assert await stream.is_asked_nothing()


async def test_request_is_sent_after_file_report_timeout(
    plane: ControlPlane, agent: WireAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "FILE_REPORT_TIMEOUT_SECONDS", 0.5)
    plane.server.publish("shop/web", ONE)
    await agent.create_connection(nginx_agent_resource())
    started = asyncio.get_running_loop().time()
    await Subscribed(agent).asked()
    assert asyncio.get_running_loop().time() - started >= 0.5


async def test_agent_with_own_main_file_gets_only_file_set(
    plane: ControlPlane, agent: WireAgent
) -> None:
    plane.server.publish("shop/web", ONE)
    own = nginx_agent_resource(pid=0)
    own.instances[-1].instance_config.agent_config.features.append("connectors")
    await agent.create_connection(own)
    stream = Subscribed(agent)
    assert set(files(await stream.asked())) == {f"/etc/nginx/{path}" for path in ONE.files}


@pytest.mark.parametrize(
    ("dead", "words"),
    [
        (nginx_agent_resource(pid=0), "it has no master process"),
        (nginx_agent_resource(nginx=False), "its agent finds no process"),
        (None, "PID: 18 is not running"),
    ],
)
async def test_dead_nginx_gets_no_request_and_gateway_is_not_programmed(
    plane: ControlPlane, agent: WireAgent, dead: command_pb2.Resource | None, words: str
) -> None:
    stream = await served(plane, agent)
    if dead is None:
        await agent.send_health("PID: 18 is not running", UNHEALTHY)
    else:
        await agent.update_status(dead)
    report = await plane.until(lambda report: not report.programmed)
    assert report.unhealthy == f"pod-1: NGINX is not healthy: {words}"
    plane.server.publish("shop/web", TWO)
    assert await stream.is_asked_nothing()
    stream = Subscribed(agent)
    # A new process of NGINX, then its health.
    await agent.update_status(nginx_agent_resource(pid=19))
    await agent.send_health("", HEALTHY)
    # It serves nothing, so it starts with the version that is known to be good.
    for expected in (ONE, TWO):
        request = await stream.asked()
        assert request.config_apply_request.overview.config_version.version == expected.version
        await stream.answer(request)
    await plane.until(lambda report: report.programmed and not report.unhealthy)


async def test_recovered_nginx_must_confirm_version_again(
    plane: ControlPlane, agent: WireAgent
) -> None:
    stream = await served(plane, agent)
    await agent.send_health("PID: 18 is not running", UNHEALTHY)
    await plane.until(lambda report: bool(report.unhealthy))
    await agent.send_health("", HEALTHY)
    report = await plane.until(lambda report: not report.unhealthy)
    assert not report.programmed
    await stream.answer(await stream.asked())
    await plane.until(lambda report: report.programmed)


async def test_agent_that_reconnects_without_nginx_is_not_programmed(
    plane: ControlPlane, agent: WireAgent
) -> None:
    stream = await served(plane, agent)
    stream.end()
    await plane.until(lambda report: not report.instances)
    await agent.create_connection(nginx_agent_resource(nginx=False))
    stream = Subscribed(agent)
    report = await plane.until(lambda report: bool(report.unhealthy))
    assert not report.programmed
    assert await stream.is_asked_nothing()


async def test_request_differs_after_agent_died_without_response(
    plane: ControlPlane, agent: WireAgent
) -> None:
    """An agent that was killed between writing and reloading finds nothing to change afterwards."""
    stream = await served(plane, agent)
    plane.server.publish("shop/web", TWO)
    first = files(await stream.asked())
    stream.end()
    await plane.until(lambda report: not report.instances)
    await agent.create_connection(nginx_agent_resource())
    stream = Subscribed(agent)
    again = files(await stream.asked())
    changed = {n for n, file in again.items() if file.file_meta.hash != first[n].file_meta.hash}
    assert changed == {MAIN}


async def test_health_of_unknown_instance_or_status_is_ignored(
    plane: ControlPlane, agent: WireAgent
) -> None:
    await served(plane, agent)
    await agent.send_health("no workers yet", "INSTANCE_HEALTH_STATUS_DEGRADED")
    await agent.send_health("cannot tell", "INSTANCE_HEALTH_STATUS_UNSPECIFIED")
    assert plane.server.report("shop/web").programmed
