"""An agent with Envoy and a sidecar that is configured by resources."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from fakes import patience
from fakes.authority import Authority
from fakes.envoy_agent import envoys, options, running, spawn
from fakes.envoy_running import EnvoyControlPlane, backend, get, website
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.agent import sidecars as owners
from gatehouse.agent import timeouts
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import SIDECAR_CONFIG_TYPE_URL, XdsResource
from gatehouse.runtime import procfs
from gatehouse.sidecars.authenticator import config
from gatehouse.sidecars.authenticator.config import Party
from gatehouse.sidecars.base import control

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> object:
    yield
    left = [*envoys(tmp_path), *filter(None, [authenticator(tmp_path)])]
    for pid in left:
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def authenticator(directory: Path) -> int | None:
    return control.pid(directory / "run" / config.AUTHENTICATOR_SOCKETS)


def party(name: str, authority: Authority, revoked: bytes = b"") -> XdsResource:
    """Return the config of a relying party whose provider does not respond."""
    relying_party = Party(
        name=name, owner=f"shop/{name}", issuer="https://127.0.0.1:1",
        metadata_url="https://127.0.0.1:1", client_id="web", secret="secret", trust="trust.pem",
        revoked="revoked.pem" if revoked else "", callback="/callback", cookie="S", timeout=60.0,
    )  # fmt: skip
    files = {
        config.AUTHENTICATORS_FILE: config.encode_parties([relying_party]),
        "secret": b"of nobody else",
        "trust.pem": authority.pem,
        "revoked.pem": revoked,
    }
    return sidecar_configs.resource(
        "authenticator", name, files, origins=(Origin("HTTPRoute", "shop", name),)
    )


async def check(directory: Path, name: str) -> int:
    """Send the authenticator a proxy's request of a user who is not logged in."""
    path = str(directory / "run" / config.REQUESTS_SOCKET)
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as client,
        client.get(f"http://authenticator/{name}/check") as response,
    ):
        return response.status


async def serves(directory: Path, name: str) -> None:
    """Wait until a newly started authenticator serves `name`."""
    async with patience.limit():
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                if await check(directory, name) == 401:
                    return
            await patience.pause()


def described(directory: Path) -> list[Path]:
    return sorted((directory / "run" / "envoy" / "companions").glob("authenticator/*"))


async def test_sidecar_serves_config_when_it_is_confirmed(
    plane: EnvoyControlPlane,
    tmp_path: Path,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeouts, "sidecar_drain_seconds", lambda _drain: 0.5)
    port = free_port()
    async with backend("one") as one, running(options(plane, tmp_path)):
        report = await plane.served(website(port, one))
        assert "gatehouse.authenticator" in report.instances[0].features
        assert authenticator(tmp_path) is None
        await plane.served(website(port, one, party("p", authority)))
        assert await check(tmp_path, "p") == 401
        pid = authenticator(tmp_path)
        assert pid is not None
        (directory,) = described(tmp_path)
        assert (directory / "secret").read_bytes() == b"of nobody else"
        for path in (directory, *directory.glob("**/*")):
            assert path.is_symlink() or path.stat().st_mode & 0o077 == 0
        await plane.served(website(port, one, party("p", authority), party("q", authority)))
        assert (await check(tmp_path, "p"), await check(tmp_path, "q")) == (401, 401)
        assert authenticator(tmp_path) == pid
        await plane.served(website(port, one))
        assert described(tmp_path) == []
        await until(lambda: not procfs.is_alive(pid))


async def test_rejected_sidecar_config_is_named_and_others_are_served(
    plane: EnvoyControlPlane, tmp_path: Path, authority: Authority
) -> None:
    port = free_port()
    async with backend("one") as one, backend("two") as two, running(options(plane, tmp_path)):
        await plane.served(website(port, one, party("p", authority)))
        bad = party("bad", authority, revoked=b"no list")
        report = await plane.served(
            website(port, two, party("p", authority), bad, party("q", authority))
        )
        (refused,) = report.instances[0].rejected
        assert refused.origins == (Origin("HTTPRoute", "shop", "bad"),)
        assert "filter shop/bad: revoked.pem" in refused.reason
        assert (await check(tmp_path, "p"), await check(tmp_path, "q")) == (401, 401)
        assert await get(port) == (200, "two")
        other = sidecar_configs.resource("juggler", "p", {})
        report = await plane.served(website(port, one, party("p", authority), other))
        assert "juggler/p: this agent has no such sidecar" in report.instances[0].error
        assert await get(port) == (200, "one")


async def test_sidecar_serves_stored_config_without_control_plane(
    plane: EnvoyControlPlane, tmp_path: Path, authority: Authority
) -> None:
    port = free_port()
    async with backend("one") as one:
        async with running(options(plane, tmp_path)):
            await plane.served(website(port, one, party("p", authority)))
        assert authenticator(tmp_path) is None
        await plane.server.stop(0.0)
        async with running(options(plane, tmp_path)):
            await serves(tmp_path, "p")
            plane.server = plane._make()
            await plane.start()
            await plane.served(website(port, one, party("q", authority)))
            assert await check(tmp_path, "q") == 401
            assert len(described(tmp_path)) == 1


async def test_sidecar_survives_agent_kill_and_is_restarted_when_it_dies(
    plane: EnvoyControlPlane, tmp_path: Path, authority: Authority
) -> None:
    port = free_port()
    async with backend("one") as one:
        agent = spawn(plane, tmp_path)
        await plane.until(lambda report: bool(report.instances))
        await plane.served(website(port, one, party("p", authority)))
        pid = authenticator(tmp_path)
        assert pid is not None
        agent.kill()
        await asyncio.to_thread(agent.wait)
        await plane.until(lambda report: not report.instances)
        assert await check(tmp_path, "p") == 401
        agent = spawn(plane, tmp_path)
        await plane.until(lambda report: report.programmed)
        assert authenticator(tmp_path) == pid
        os.kill(pid, signal.SIGKILL)
        await until(lambda: authenticator(tmp_path) not in (None, pid))
        await serves(tmp_path, "p")
        agent.terminate()
        assert await asyncio.to_thread(agent.wait) == 0
        assert authenticator(tmp_path) is None


async def test_hanging_sidecar_is_reported_restarted_and_configured_again(
    plane: EnvoyControlPlane,
    tmp_path: Path,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    async with backend("one") as one, backend("two") as two, running(options(plane, tmp_path)):
        await plane.served(website(port, one, party("p", authority)))
        pid = authenticator(tmp_path)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr(owners, "CONTROL_TIMEOUT_SECONDS", 0.3)
        monkeypatch.setattr("gatehouse.agent.envoy.sidecar_manager.RETRY_SECONDS", 1.0)
        both = (party("p", authority), party("q", authority))
        plane.publish(website(port, two, *both))
        report = await plane.until(lambda report: bool(report.instances[0].rejected))
        (refused,) = report.instances[0].rejected
        assert "no response within 0.3 s" in refused.reason
        monkeypatch.setattr(owners, "CONTROL_TIMEOUT_SECONDS", 10.0)
        await plane.until(lambda report: report.programmed and not report.instances[0].rejected)
        assert (await check(tmp_path, "p"), await check(tmp_path, "q")) == (401, 401)
        assert await get(port) == (200, "two")


def test_sidecar_config_is_stored_like_other_resources(authority: Authority) -> None:
    resource = party("p", authority)
    assert (resource.type_url, resource.secret) == (SIDECAR_CONFIG_TYPE_URL, True)
    assert resource == party("p", authority)
