"""Ports that a real Envoy cannot get are tried again until another program releases them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import aiohttp
import pytest

from fakes import patience
from fakes.agent_control_plane import GATEWAY
from fakes.envoy_running import get
from fakes.quarantined_envoy import Controller, controller_with_envoy, route
from gatehouse.controller import outputs
from gatehouse.dataplane.xds import ads_session
from gatehouse.dataplane.xds.subscription import Subscription

pytestmark = pytest.mark.process


@pytest.fixture
async def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Controller]:
    monkeypatch.setattr(ads_session, "LISTENER_RETRY_SECONDS", 0.3)
    async with controller_with_envoy(tmp_path) as result:
        yield result


async def answer(port: int) -> tuple[int, str]:
    try:
        return await get(port, "a.example", "/app")
    except aiohttp.ClientError:
        return 0, ""


def rejections(controller: Controller) -> list[str]:
    return [one.reason for one in outputs.rejections_of(controller.publisher.report(GATEWAY))]


async def test_port_in_use_is_served_soon_after_its_release(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    retries: list[list[str]] = []
    retry = Subscription.retry

    def count(state: Subscription, names: Iterable[str]) -> None:
        retries.append(list(names))
        retry(state, retries[-1])

    monkeypatch.setattr(Subscription, "retry", count)
    controller.hosts["a.example"] = (route("app"),)
    await controller.settle()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        controller.more_ports = (port,)
        await controller.settle()
        (reason,) = rejections(controller)
        assert reason.endswith(f"cannot bind '127.0.0.1:{port}': Address already in use")
        reasons: list[list[str]] = []
        async with patience.limit():
            while len(retries) < 3:
                # A port that is tried again is not reported as served meanwhile.
                reasons.append(rejections(controller))
                await patience.pause()
        assert reasons == [[reason]] * len(reasons)
        assert retries[0] == [f"tcp/{port}"]
        assert await answer(controller.port) == (200, "app")
    async with patience.limit():
        while await answer(port) != (200, "app") or rejections(controller):
            await patience.pause()
    assert await answer(controller.port) == (200, "app")
