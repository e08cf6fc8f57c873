"""Real Envoys that talk to the control plane themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from agent_control_plane import free_port
from envoy_running import (
    EnvoyControlPlane,
    backend,
    bad_cluster,
    cluster,
    direct_envoy,
    endpoints,
    get,
    invalid_cluster,
    routes,
    website,
)

from gatehouse.xds.resources import Resource

pytestmark = pytest.mark.process

REASONS: dict[Callable[..., Resource], str] = {
    bad_cluster: "malformed IP address: no-address",
    invalid_cluster: "Invalid duration: Expected positive duration",
}


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[EnvoyControlPlane]:
    made = EnvoyControlPlane(tmp_path)
    await made.start()
    yield made
    await made.server.stop(0.1)


@pytest.mark.parametrize("delta", [True, False])
async def test_what_is_published_is_served_when_it_is_confirmed(
    plane: EnvoyControlPlane, tmp_path: Path, delta: bool
) -> None:
    port = free_port()
    async with (
        backend("one") as one,
        backend("two") as two,
        direct_envoy(tmp_path / "e", plane, delta=delta),
    ):
        report = await plane.served(website(port, one))
        assert report.instances[0].instance == "pod-1"
        assert report.instances[0].proxy.startswith("envoy/1.")
        assert "envoy.filters.http.router" in report.instances[0].modules
        assert await get(port) == (200, "one")
        await plane.served(website(port, two))
        assert await get(port) == (200, "two")
        more = (cluster("other"), endpoints("other", one))
        changed = (routes("http", ("other", "other"), ("*", "web")), *more)
        await plane.served(website(port, two, *changed))
        assert await get(port, "other") == (200, "one")
        assert await get(port) == (200, "two")
        await plane.served(website(port, two))
        assert await get(port, "other") == (200, "two")


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("make", [bad_cluster, invalid_cluster])
async def test_what_is_refused_is_named_and_all_else_is_served(
    plane: EnvoyControlPlane, tmp_path: Path, delta: bool, make: Callable[..., Resource]
) -> None:
    port = free_port()
    async with backend("one") as one, direct_envoy(tmp_path / "e", plane, delta=delta):
        many = [each for n in range(20) for each in (cluster(f"c{n}"), endpoints(f"c{n}", one))]
        bad = make("bad", origins=("HTTPRoute shop/bad",))
        report = await plane.served(website(port, one, bad, *many))
        assert await get(port) == (200, "one")
        (refused,) = report.instances[0].refused
        assert refused.origins == ("HTTPRoute shop/bad",)
        assert refused.reason.startswith(REASONS[make])
        report = await plane.served(
            website(port, one, cluster("bad"), endpoints("bad", one), *many)
        )
        assert not report.instances[0].refused


@pytest.mark.parametrize("delta", [True, False])
async def test_a_cluster_that_changes_is_warm_at_once(
    plane: EnvoyControlPlane, tmp_path: Path, delta: bool
) -> None:
    port = free_port()
    async with backend("one") as one, direct_envoy(tmp_path / "e", plane, delta=delta):
        nobody = endpoints("empty")
        await plane.served(website(port, one, cluster("empty"), nobody))
        changed = (cluster("web", seconds=4), cluster("empty", seconds=4))
        plane.publish(website(port, one, *changed, nobody))
        # An Envoy that waits for endpoints which do not come gives up after 15 s.
        await plane.until(lambda report: report.programmed, seconds=10)
        assert await get(port) == (200, "one")
