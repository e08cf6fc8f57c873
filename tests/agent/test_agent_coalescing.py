"""Changes faster than NGINX can reload are coalesced: no queue grows."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from fakes.agent_control_plane import GATEWAY, ControlPlane, answering
from fakes.durations import pace
from fakes.loopback import free_port
from fakes.nginx_agent import get, running
from gatehouse.agent.nginx import main

pytestmark = pytest.mark.process

CHANGES = 100
MOST_APPLIES = CHANGES // 2
"""A change comes every 20 ms, and no reload is that fast."""


async def test_served_version_is_never_two_applies_behind(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    bundles = [answering(port, f"v{number}") for number in range(CHANGES + 1)]
    numbers = {bundle.version: number for number, bundle in enumerate(bundles)}
    newest = 0
    confirmed: list[tuple[int, int]] = []
    """Of each apply that ended well: which it was, and what was the newest at that moment."""
    on_report = control_plane.server.events.on_report

    def note(gateway: str) -> None:
        for instance in control_plane.server.report(GATEWAY).instances:
            result = numbers.get(instance.confirmed)
            if result is not None and (not confirmed or confirmed[-1][0] != result):
                confirmed.append((result, newest))
        on_report(gateway)

    environ = control_plane.environment(tmp_path)
    async with running(main.options_from_environment(environ)):
        await control_plane.programmed(bundles[0])
        control_plane.server.events.on_report = note
        for newest in range(1, CHANGES + 1):
            control_plane.server.publish(GATEWAY, bundles[newest])
            await pace(0.02)
        await control_plane.until(lambda report: report.programmed)
        assert await get(port) == (200, f"v{CHANGES}")
    assert confirmed[-1][0] == CHANGES
    assert 2 <= len(confirmed) <= MOST_APPLIES
    for (_, known), (following, _) in itertools.pairwise(confirmed):
        # The next apply has the version that was newest when the previous one ended.
        assert following >= known
