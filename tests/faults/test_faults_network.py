"""Networks that are very slow, or silent: what takes longer than `make test` has time for."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from pathlib import Path

import pytest

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane, answering, connected
from fakes.agent_network import fetched, noise, options
from fakes.faulty_proxy import cutting_proxy
from fakes.load import Load
from fakes.loopback import free_port
from fakes.nginx_agent import get, running
from gatehouse.agent.nginx import main

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

__all__ = ["fetched"]


@pytest.mark.parametrize("moment", ["at rest", "while files are fetched"])
async def test_silent_connection_is_replaced(
    control_plane: ControlPlane, fetched: Counter[str], tmp_path: Path, moment: str
) -> None:
    port, files = free_port(), noise([30_000] * 40)
    newest = answering(port, "two", *files)
    async with (
        cutting_proxy(control_plane.port) as network,
        running(options(control_plane, network, tmp_path)),
    ):
        await control_plane.programmed(answering(port, "one"))
        async with Load(port) as load:
            fetched.clear()
            if moment == "at rest":
                network.stall()
                control_plane.server.publish(GATEWAY, newest)
            else:
                network.stall_after = 600_000
                control_plane.server.publish(GATEWAY, newest)
            await network.stalled()
            first = network.connections
            network.recover()
            # 20 s until it asks, 60 s until it gives up; the first connection is never closed.
            await control_plane.until(lambda report: report.programmed)
            assert network.connections > first
            assert await get(port) == (200, "two")
            await load.flows()
        assert not load.failed
        assert fetched.total() <= len(files) + 2 + 8


async def test_configuration_is_fetched_at_ten_kilobytes_per_second(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """A bundle of 400 kB: small files, and one that takes 20 s by itself."""
    port, other = free_port(), free_port()
    there = tmp_path / "other"
    there.mkdir()
    files = noise([10_000] * 20 + [200_000])
    slow, quick = answering(port, "slow", *files), answering(other, "quick")
    environ = control_plane.environment(there) | {"POD_NAME": "pod-2"}
    token = tmp_path / "token-2"
    token.write_text("good:pod-2@shop/other")
    environ["NGINX_AGENT_COMMAND_AUTH_TOKENPATH"] = str(token)
    async with contextlib.AsyncExitStack() as stack:
        network = await stack.enter_async_context(cutting_proxy(control_plane.port))
        network.rate = 10_000
        await stack.enter_async_context(running(options(control_plane, network, tmp_path)))
        await stack.enter_async_context(running(main.options_from_environment(environ)))
        await control_plane.until(connected)
        begun = time.monotonic()
        control_plane.server.publish(GATEWAY, slow)
        # Another agent of the same control plane notices nothing of it.
        control_plane.server.publish("shop/other", quick)
        await patience.until(lambda: control_plane.server.report("shop/other").programmed)
        assert not control_plane.server.report(GATEWAY).programmed
        await control_plane.until(lambda report: report.programmed, 2)
        print(f"400 kB at 10 kB/s: {time.monotonic() - begun:.0f} s")
        assert await get(port) == (200, "slow")
        async with Load(port) as load:
            await control_plane.programmed(answering(port, "again", *files))
        assert not load.failed


async def test_file_transfer_of_minutes_succeeds(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Longer than the deadline of a call that says nothing, and than that of an apply."""
    port = free_port()
    large = answering(port, "large", *noise([900_000]))
    async with cutting_proxy(control_plane.port) as network:
        network.rate = 10_000
        async with running(options(control_plane, network, tmp_path)):
            await control_plane.until(connected)
            control_plane.server.publish(GATEWAY, large)
            await control_plane.until(lambda report: report.programmed, 3)
            assert await get(port) == (200, "large")
