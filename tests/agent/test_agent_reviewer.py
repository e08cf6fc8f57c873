"""An agent with Envoy and a reviewer sidecar."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from fakes import patience
from fakes.envoy_agent import envoys, options, running
from fakes.envoy_running import EnvoyControlPlane, backend, website
from fakes.loopback import free_port
from fakes.patience import until
from fakes.reviewer_process import Upstream, review
from gatehouse.agent import timeouts
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.runtime import procfs
from gatehouse.sidecars.base import control
from gatehouse.sidecars.reviewer import config

pytestmark = pytest.mark.process

REVIEWER = sidecar_configs.resource("reviewer", "all", {config.REVIEWER_FILE: config.CONTENT})


def reviewer(directory: Path) -> int | None:
    return control.pid(directory / "run" / config.REVIEWER_SOCKETS)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    for pid in (*envoys(tmp_path), *filter(None, [reviewer(tmp_path)])):
        os.kill(pid, signal.SIGKILL)


async def status(directory: Path, token: str) -> int:
    """Send a review request as Envoy's Lua script does."""
    path = str(directory / "run" / config.REVIEWER_SOCKET)
    headers = {
        "x-cluster": "prod.example", "authorization": f"Bearer {token}",
        "x-good-for": "60", "x-bad-for": "60",
    }  # fmt: skip
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as http,
        http.post("http://reviewer/token", headers=headers) as response,
    ):
        return response.status


async def test_reviewer_runs_beside_envoy_while_needed(
    plane: EnvoyControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "sidecar_drain_seconds", lambda _drain: 0.5)
    port, health = free_port(), f"127.0.0.1:{free_port()}"
    chosen = msgspec.structs.replace(options(plane, tmp_path), health_address=health)
    upstream = Upstream(tmp_path / "run" / config.UPSTREAM, None)

    async def nobodys(_: object) -> aiohttp.web.Response:
        return review({"user": {}})

    upstream.fault = nobodys
    async with backend("one") as one, running(chosen):
        report = await plane.served(website(port, one))
        assert "gatehouse.reviewer" in report.instances[0].features
        assert reviewer(tmp_path) is None
        await plane.served(website(port, one, REVIEWER))
        assert await status(tmp_path, "a") == 503
        await upstream.start()
        assert await status(tmp_path, "a") == 401
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://{health}/metrics") as response,
        ):
            text = await response.text()
        (line,) = [
            splitline
            for splitline in text.splitlines()
            if 'cache_entries{cache="refused"' in splitline
        ]
        assert line.endswith(" 1.0")
        pid = reviewer(tmp_path)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: reviewer(tmp_path) not in (None, pid))
        async with patience.limit():
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    if await status(tmp_path, "a") == 401:
                        break
                await patience.pause()
        pid = reviewer(tmp_path)
        assert pid is not None
        await plane.served(website(port, one))
        await until(lambda: not procfs.is_alive(pid))
        assert not (tmp_path / "run" / config.REVIEWER_SOCKET).exists()
        await upstream.stop()
