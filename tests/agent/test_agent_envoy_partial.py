"""Resources of rejected responses that a real Envoy has applied in part."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.envoy_running import get
from fakes.keepalive_load import Load
from fakes.quarantined_envoy import BAD, KEY, Controller, controller_with_envoy, route

pytestmark = pytest.mark.process

LOADED = dict.fromkeys(("127.0.0.1", "l"), (route(""),))
"""Hostnames of the requests of :class:`Load`."""


@pytest.fixture
async def controller(tmp_path: Path) -> AsyncIterator[Controller]:
    async with controller_with_envoy(tmp_path) as result:
        result.rejects_late = True
        yield result


async def not_served(controller: Controller) -> list[str]:
    """Return the hostnames of good routes that are not served."""
    left_out = {finding.origin.name for finding in controller.quarantines.findings(KEY)}
    return [
        host
        for host, routes in controller.hosts.items()
        for one in routes
        if one.origin.name not in left_out
        and await get(controller.port, host, f"/{one.origin.name}") != (200, "app")
    ]


async def test_good_hostnames_are_served_beside_rejected_ones(controller: Controller) -> None:
    controller.hosts |= LOADED
    await controller.settle()
    load = Load("127.0.0.1", controller.port)
    async with load.running():
        for number in range(3):
            for good in range(20):
                controller.hosts[f"g{number}-{good}.example"] = (route("good"),)
            controller.hosts[f"g{number}-9-bad.example"] = (route(f"bad-{number}", BAD),)
            await controller.settle()
            assert await not_served(controller) == []
            assert len(controller.quarantines.findings(KEY)) == number + 1
    assert not load.failed
    assert sum(load.answered.values()) > 10


async def test_changed_hostnames_are_served_beside_rejected_ones(controller: Controller) -> None:
    """Envoy has an earlier version of each, which it serves until it has the new one."""
    hosts = [f"g{number}.example" for number in range(20)]
    controller.hosts |= dict.fromkeys(hosts, (route("old"),))
    controller.hosts |= LOADED
    await controller.settle()
    load = Load("127.0.0.1", controller.port)
    async with load.running():
        controller.hosts |= dict.fromkeys(hosts, (route("old"), route("new")))
        controller.hosts["g5.example"] = (route("old"), route("bad", BAD))
        await controller.settle()
        assert await not_served(controller) == []
        controller.hosts |= dict.fromkeys(hosts, (route("old"),))
        await controller.settle()
        assert [await get(controller.port, host, "/new") for host in hosts] == [(404, "")] * 20
    assert not load.failed


async def test_new_envoy_serves_good_hostnames_beside_rejected_ones(controller: Controller) -> None:
    """Also if the controller is replaced with it."""
    for number in range(12):
        controller.hosts[f"g{number}.example"] = (route("good"),)
    controller.hosts["g4-bad.example"] = (route("bad", BAD),)
    controller.hosts["g7-bad.example"] = (route("worse", BAD),)
    await controller.settle()
    assert await not_served(controller) == []
    await controller.stop_agent()
    await controller.restart()
    controller.start_agent()
    await controller.plane.until(lambda report: bool(report.instances))
    await controller.settle()
    assert await not_served(controller) == []
    assert len(controller.quarantines.findings(KEY)) == 2
