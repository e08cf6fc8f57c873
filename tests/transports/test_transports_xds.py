"""Real Envoys that talk to the control plane themselves."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest

from fakes.agent_control_plane import GATEWAY
from fakes.envoy_model import Ask, Reply
from fakes.envoy_running import (
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
from fakes.loopback import free_port
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.delta import DELTA_METHOD
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, XdsResource
from gatehouse.transports.xds.services import ADS_SERVICE

pytestmark = pytest.mark.process

REASONS: dict[Callable[..., XdsResource], str] = {
    bad_cluster: "malformed IP address: no-address",
    invalid_cluster: "Invalid duration: Expected positive duration",
}


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[EnvoyControlPlane]:
    async with EnvoyControlPlane(tmp_path) as control_plane:
        yield control_plane


@pytest.mark.parametrize("delta", [True, False])
async def test_published_resources_are_served_once_confirmed(
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
async def test_rejected_resource_is_reported_and_others_are_served(
    plane: EnvoyControlPlane, tmp_path: Path, delta: bool, make: Callable[..., XdsResource]
) -> None:
    port = free_port()
    async with backend("one") as one, direct_envoy(tmp_path / "e", plane, delta=delta):
        many = [
            resource for n in range(20) for resource in (cluster(f"c{n}"), endpoints(f"c{n}", one))
        ]
        bad = make("bad", origins=(Origin("HTTPRoute", "shop", "bad"),))
        report = await plane.served(website(port, one, bad, *many))
        assert await get(port) == (200, "one")
        (refused,) = report.instances[0].rejected
        assert refused.origins == (Origin("HTTPRoute", "shop", "bad"),)
        assert refused.reason.startswith(REASONS[make])
        report = await plane.served(
            website(port, one, cluster("bad"), endpoints("bad", one), *many)
        )
        assert not report.instances[0].rejected


@pytest.mark.parametrize("delta", [True, False])
async def test_changed_cluster_is_warm_at_once(
    plane: EnvoyControlPlane, tmp_path: Path, delta: bool
) -> None:
    port = free_port()
    async with backend("one") as one, direct_envoy(tmp_path / "e", plane, delta=delta):
        nobody = endpoints("empty")
        await plane.served(website(port, one, cluster("empty"), nobody))
        changed = (cluster("web", seconds=4), cluster("empty", seconds=4))
        plane.publish(website(port, one, *changed, nobody))
        # An Envoy that waits for endpoints which do not come gives up after 15 s.
        await plane.until(lambda report: report.programmed)
        assert await get(port) == (200, "one")


async def test_token_of_another_gateway_gets_only_its_resources(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    ours, theirs = free_port(), free_port()
    async with (
        backend("ours") as one,
        backend("theirs") as two,
        direct_envoy(tmp_path / "a", plane),
        direct_envoy(tmp_path / "b", plane, "good:pod-2@other/gateway"),
    ):
        plane.server.envoys.publish("other/gateway", website(theirs, two))
        await plane.served(website(ours, one))
        await plane.until(lambda _: plane.server.envoys.report("other/gateway").programmed)
        assert await get(ours) == (200, "ours")
        assert await get(theirs) == (200, "theirs")
        for directory, expected in (("a", "ours"), ("b", "theirs")):
            listeners = await admin(tmp_path / directory / "admin.sock", "/listeners")
            assert listeners.split() == [
                f"http::127.0.0.1:{ours if expected == 'ours' else theirs}"
            ]


async def admin(socket: Path, path: str) -> str:
    connector = aiohttp.UnixConnector(str(socket))
    async with (
        aiohttp.ClientSession(connector=connector) as client,
        client.get(f"http://envoy{path}") as response,
    ):
        return await response.text()


async def test_invalid_token_is_denied(plane: EnvoyControlPlane, tmp_path: Path) -> None:
    plane.publish(website(free_port(), ("127.0.0.1", 1)))
    async with channel(plane) as opened:
        call = stream(opened, "bad")
        # The server may have ended the stream before the write.
        with pytest.raises(grpc.aio.AioRpcError):
            await call.write(Ask(type_url=CLUSTER_TYPE_URL))
            await call.read()
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_client_that_does_not_read_delays_no_other_client(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    large = [cluster(f"c{n}-{'x' * 60_000}") for n in range(200)]
    async with channel(plane) as opened:
        call = stream(opened, "good:sleeper@shop/web")
        await call.write(Ask(type_url=CLUSTER_TYPE_URL))
        await plane.until(lambda report: len(report.instances) == 1)
        async with backend("one") as one, direct_envoy(tmp_path / "e", plane):
            plane.publish(website(port, one, *large[:100]))
            await plane.until(lambda report: confirmed(report, "pod-1"))
            plane.publish(website(port, one, *large))
            await plane.until(lambda report: confirmed(report, "pod-1"))
            assert await get(port) == (200, "one")
            assert not plane.report().programmed


def confirmed(report: DataPlaneReport, instance: str) -> bool:
    result = {entry.instance: entry.confirmed for entry in report.instances}
    return result.get(instance) == report.desired


async def test_reconnected_client_replaces_its_former_stream(
    plane: EnvoyControlPlane,
) -> None:
    async with channel(plane) as opened:
        first = stream(opened, "good:pod-1")
        await first.write(Ask(type_url=CLUSTER_TYPE_URL))
        await plane.until(lambda report: len(report.instances) == 1)
        second = stream(opened, "good:pod-1")
        await second.write(Ask(type_url=CLUSTER_TYPE_URL))
        assert await first.code() is grpc.StatusCode.UNAVAILABLE
        plane.publish(website(1, ("127.0.0.1", 1)))
        response = await second.read()
        assert [resource.name for resource in response.resources] == ["web"]
        assert len(plane.report().instances) == 1


async def test_withdrawn_resources_stay_in_envoy(plane: EnvoyControlPlane, tmp_path: Path) -> None:
    port = free_port()
    async with backend("one") as one, direct_envoy(tmp_path / "e", plane):
        await plane.served(website(port, one))
        plane.server.envoys.withdraw(GATEWAY)
        assert plane.report().desired == ""
        assert not plane.report().programmed
        await plane.restart()
        await plane.until(lambda report: bool(report.instances))
        assert await get(port) == (200, "one")


@contextlib.asynccontextmanager
async def channel(plane: EnvoyControlPlane) -> AsyncIterator[grpc.aio.Channel]:
    trusted = grpc.ssl_channel_credentials(plane.cert.read_bytes())
    override = (("grpc.ssl_target_name_override", "control.plane"),)
    target = f"127.0.0.1:{plane.port}"
    async with grpc.aio.secure_channel(target, trusted, options=override) as opened:
        yield opened


def stream(opened: grpc.aio.Channel, token: str) -> Any:
    method: Any = opened.stream_stream(
        f"/{ADS_SERVICE}/{DELTA_METHOD}",
        request_serializer=Ask.SerializeToString,
        response_deserializer=Reply.FromString,
    )
    return method(metadata=(("authorization", token),))
