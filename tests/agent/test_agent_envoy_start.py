"""Start of an Envoy: the control plane counts a configuration as served once Envoy serves it."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.durations import be_slow
from fakes.envoy_agent import envoys, options, running
from fakes.envoy_running import EnvoyControlPlane, backend, get, website
from fakes.loopback import free_port
from gatehouse.agent.envoy import main
from gatehouse.agent.envoy.start_gate import StartGate

pytestmark = pytest.mark.process

DELAY_SECONDS = 1.0
"""Time in seconds by which a message between Envoy and the gate is late."""


class LateRequests(StartGate):
    """A gate at which Envoy's requests arrive late: when it has accepted its configuration."""

    async def _serve(self, requests: AsyncIterator[Any], context: Any) -> None:
        await be_slow(DELAY_SECONDS)
        await super()._serve(requests, context)


class LateRoutes(StartGate):
    """A gate whose routes arrive at Envoy late: when the agent has opened it."""

    async def _serve(self, requests: AsyncIterator[Any], context: Any) -> None:
        write = context.write

        class _Context:
            send_initial_metadata = context.send_initial_metadata

            async def write(self, response: Any) -> None:
                await be_slow(DELAY_SECONDS)
                await write(response)

        await super()._serve(requests, _Context())  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def no_envoy_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    for pid in envoys(tmp_path):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("gate", [StartGate, LateRequests, LateRoutes])
async def test_confirmed_configuration_is_served_at_once(
    gate: type[StartGate],
    plane: EnvoyControlPlane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(main, "StartGate", gate)
    port = free_port()
    async with backend("first") as first, running(options(plane, tmp_path)):
        await plane.served(website(port, first))
        assert await get(port) == (200, "first")


@pytest.mark.parametrize("gate", [LateRequests, LateRoutes])
async def test_configuration_changed_during_the_start_is_served_when_confirmed(
    gate: type[StartGate],
    plane: EnvoyControlPlane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(main, "StartGate", gate)
    ports = free_port(), free_port()
    async with (
        backend("first") as first,
        backend("second") as second,
        running(options(plane, tmp_path)),
    ):
        plane.publish(website(ports[0], first))
        await be_slow(DELAY_SECONDS / 2)
        await plane.served(website(ports[1], second))
        assert await get(ports[1]) == (200, "second")
