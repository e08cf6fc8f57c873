"""The real NGINX Agent v3 under the agents' server: packages of NGINX, many files, several agents.

``tests/e2e/test_e2e_field_agent.py`` has its life cycle under the whole control plane.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from fakes.agent_control_plane import GATEWAY, ControlPlane, answering
from fakes.authority import Authority
from fakes.field_agent import FieldAgent, package_of, program
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.dataplane.file_set import File, FileSet

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.peers]


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    program()
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        async with ControlPlane(Path(directory)) as plane:
            yield plane


def field_agent(
    plane: ControlPlane, pod: str, nginx: Path | None = None, *, nginx_org: bool = False
) -> FieldAgent:
    """Return an agent with a token of its own."""
    token = plane.directory / f"{pod}.token"
    token.write_text(f"good:{pod}")
    environment = plane.environment(plane.directory / pod)
    environment["NGINX_AGENT_COMMAND_AUTH_TOKENPATH"] = str(token)
    environment["NGINX_AGENT_COMMAND_OWNER"] = "shop_web"
    return FieldAgent(plane.directory / pod, environment, free_port(), 3, nginx, nginx_org)


async def get(port: int = 0, socket: Path | None = None) -> str:
    """Return the body of a response, from a port or a Unix socket; empty if there is none."""
    connector = aiohttp.UnixConnector(str(socket)) if socket else None
    with contextlib.suppress(aiohttp.ClientError, OSError):
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"http://127.0.0.1:{port or 80}/") as response,
        ):
            return await response.text()
    return ""


async def served(text: str, port: int = 0, socket: Path | None = None) -> bool:
    return await get(port, socket) == text


def debian_nginx() -> Path:
    nginx = shutil.which(os.environ.get("GATEHOUSE_TEST_NGINX", ""))
    if nginx is None or package_of(Path(nginx)) is None:
        pytest.skip("GATEHOUSE_TEST_NGINX names no NGINX of Debian's unpacked packages")
    return Path(nginx)


async def test_debian_nginx_is_served_and_package_files_stay(plane: ControlPlane) -> None:
    agent = field_agent(plane, "pod-1", debian_nginx())
    assert "user www-data;" in (agent.nginx_directory / "nginx.conf").read_text()
    names = ("nginx.conf", "mime.types", "sites-available/default", "modules-enabled")
    await is_served_and_files_stay(plane, agent, names)


async def test_layout_of_nginx_org_is_served_and_package_files_stay(plane: ControlPlane) -> None:
    agent = field_agent(plane, "pod-1", debian_nginx(), nginx_org=True)
    names = ("nginx.conf", "mime.types", "fastcgi_params", "conf.d/default.conf", "modules")
    await is_served_and_files_stay(plane, agent, names)
    assert "return 200 before" in (agent.nginx_directory / "conf.d" / "default.conf").read_text()
    # The build without the collector has no metrics of its own, and goes on without them.
    assert "panic" not in agent.agent_log.read_text()


async def is_served_and_files_stay(
    plane: ControlPlane, agent: FieldAgent, names: tuple[str, ...]
) -> None:
    """Assert that changes, a rejection and a restart are served, and that the files stay."""
    port = free_port()
    async with agent.running():
        for number in range(21):
            report = await plane.programmed(answering(port, f"v{number}"))
            await until(partial(served, f"v{number}", port))
        assert report.instances[0].proxy.startswith("nginx/1.")
        plane.server.publish(GATEWAY, answering(port, "bad; not_a_directive on"))
        report = await plane.until(lambda report: bool(report.error))
        assert 'unknown directive "not_a_directive"' in report.error
        assert await get(port) == "v20"
        for name in ("agent", "nginx"):
            await agent.kill(name)
        await agent.end_workers()
        await agent.start_nginx()
        await agent.start_agent()
        await plane.programmed(answering(port, "after"))
        await until(partial(served, "after", port))
    for name in names:
        path = agent.nginx_directory / name
        assert path.exists() or path.is_symlink(), name


async def test_agent_with_label_of_another_deployment_is_denied(plane: ControlPlane) -> None:
    agent, port = field_agent(plane, "pod-1"), free_port()
    agent.set_owner("shop_other")
    plane.server.publish(GATEWAY, answering(port, "one"))
    reason = "the token belongs to shop_web, not to shop_other"
    async with agent.running():
        await until(partial(logged, agent, reason))
        assert await get(port) == ""
        await agent.kill("agent")
        agent.set_owner("shop_web")
        await agent.start_agent()
        await until(partial(served, "one", port))


async def test_agent_with_another_ca_does_not_connect(plane: ControlPlane, tmp_path: Path) -> None:
    other, port = Authority(tmp_path, "other"), free_port()
    agent = field_agent(plane, "pod-1")
    trusted = agent.trust(other.file)
    plane.server.publish(GATEWAY, answering(port, "one"))
    async with agent.running():
        await until(partial(logged, agent, "certificate signed by unknown authority"))
        assert await get(port) == ""
        await agent.kill("agent")
        agent.trust(trusted)
        await agent.start_agent()
        await until(partial(served, "one", port))


async def logged(agent: FieldAgent, text: str) -> bool:
    return text in agent.agent_log.read_text()


async def test_debian_nginx_serves_l4_routes_with_its_dynamic_module(plane: ControlPlane) -> None:
    agent = field_agent(plane, "pod-1", debian_nginx())
    port, l4_port = free_port(), free_port()
    stream = f"server {{ listen 127.0.0.1:{l4_port}; return l4; }}\n"

    async def l4_served() -> bool:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", l4_port)
            content = await reader.read()
            writer.close()
            return content == b"l4"
        return False

    async with agent.running():
        files = answering(port, "one", File.make("gatehouse/stream.conf", stream))
        await plane.programmed(files)
        await until(l4_served)
        await until(partial(served, "one", port))
        # Without L4 routes the module is not needed. A restarted NGINX has it again.
        await plane.programmed(answering(port, "two"))
        await until(partial(served, "two", port))
        await plane.programmed(files)
        for name in ("agent", "nginx"):
            await agent.kill(name)
        await agent.end_workers()
        await agent.start_nginx()
        await until(l4_served)


async def test_many_and_large_files_are_applied_and_removed(plane: ControlPlane) -> None:
    agent, port = field_agent(plane, "pod-1"), free_port()
    large = File.make("gatehouse/assets/large", os.urandom(6 << 20))
    many = [File.make(f"gatehouse/assets/{number}", f"{number}") for number in range(500)]
    async with agent.running():
        plane.server.publish(GATEWAY, answering(port, "many", large, *many))
        await plane.until(lambda report: report.programmed)
        await until(partial(served, "many", port))
        assets = agent.nginx_directory / "gatehouse" / "assets"
        assert (assets / "large").read_bytes() == large.content
        assert len(list(assets.iterdir())) == 501
        await plane.programmed(answering(port, "few", many[0]))
        await until(partial(served, "few", port))
        assert [path.name for path in assets.iterdir()] == ["0"]
        assert (agent.nginx_directory / "mime.types").exists()


def on_socket(text: str) -> FileSet:
    """Return a file set that is served on a socket in the directory of each NGINX."""
    conf = f"server {{ listen unix:plane.sock; location / {{ return 200 {text}; }} }}\n"
    return FileSet([File.make("gatehouse/http.conf", conf)])


async def test_new_agents_get_newest_configuration_and_count(plane: ControlPlane) -> None:
    agents = [field_agent(plane, f"pod-{number}") for number in (1, 2, 3)]
    sockets = [agent.nginx_directory / "plane.sock" for agent in agents]
    plane.server.publish(GATEWAY, on_socket("one"))
    async with agents[0].running():
        await plane.until(lambda report: report.programmed)
        async with agents[1].running(), agents[2].running():
            await plane.until(lambda report: len(report.instances) == 3 and report.programmed)
            for text in ("one", "two"):
                await plane.programmed(on_socket(text))
                for socket in sockets:
                    await until(partial(served, text, socket=socket))
        await plane.until(lambda report: report.names == ("pod-1",))
        await plane.programmed(on_socket("three"))
        await until(partial(served, "three", socket=sockets[0]))
