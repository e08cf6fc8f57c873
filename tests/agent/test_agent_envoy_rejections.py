"""Resources that a real Envoy rejects: an agent names them and serves the others."""

from __future__ import annotations

import math
import os
import signal
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from fakes.agent_control_plane import GATEWAY, write_certificate
from fakes.envoy_agent import envoys, options, running
from fakes.envoy_running import (
    EnvoyControlPlane,
    backend,
    bad_cluster,
    cluster,
    endpoints,
    get,
    invalid_cluster,
    listener,
    routes,
    secret,
    website,
)
from fakes.envoy_traffic import answers
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.agent.envoy import first_configuration
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import (
    XdsResource,
)

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("no_envoy_is_left")]


async def test_new_envoy_starts_beside_a_rejected_resource_after_a_time(
    plane: EnvoyControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_configuration, "REJECTION_SECONDS", math.inf)
    port = free_port()
    async with backend("one") as one, running(options(plane, tmp_path)):
        report = await plane.served(website(port, one, bad_cluster("bad")))
        assert report.instances[0].error
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(port)
        monkeypatch.setattr(first_configuration, "REJECTION_SECONDS", 0.0)
        await answers(port, "one")


async def test_new_envoy_starts_at_once_beside_a_port_in_use(
    plane: EnvoyControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_configuration, "REJECTION_SECONDS", math.inf)
    port = free_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        second = listener("second", other.getsockname()[1], "http")
        async with backend("one") as one, running(options(plane, tmp_path)):
            await plane.served(website(port, one, second))
            assert await get(port) == (200, "one")


@pytest.mark.parametrize("make", [bad_cluster, invalid_cluster])
async def test_rejected_resource_is_named_and_previous_version_is_served(
    plane: EnvoyControlPlane, tmp_path: Path, make: Callable[..., XdsResource]
) -> None:
    port = free_port()
    hosts = routes("http", ("other", "other"), ("*", "web"))
    async with backend("one") as one, backend("two") as two, running(options(plane, tmp_path)):
        good = (cluster("other"), endpoints("other", one))
        await plane.served(website(port, one, hosts, *good))
        bad = make("other", origins=(Origin("HTTPRoute", "shop", "other"),))
        report = await plane.served(website(port, two, hosts, bad, endpoints("other", one)))
        (refused,) = report.instances[0].rejected
        assert refused.origins == (Origin("HTTPRoute", "shop", "other"),)
        assert "IP address" in refused.reason or "duration" in refused.reason
        assert await get(port) == (200, "two")
        assert await get(port, "other") == (200, "one")
        (pid,) = envoys(tmp_path)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: bool(envoys(tmp_path)) and envoys(tmp_path) != [pid])
        await answers(port, "two")
        assert await get(port, "other") == (200, "one")
        report = await plane.served(website(port, two, hosts, *good))
        assert not report.instances[0].rejected
        reason = "Envoy is not healthy: Envoy is not running"
        assert plane.incidents == [(GATEWAY, "pod-1", reason)]
    assert len(plane.incidents) == 1, "a stop is no incident"


async def test_rejected_certificate_is_named_and_previous_one_is_served(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port, secure, later = free_port(), free_port(), free_port()
    cert, key = plane.cert.read_bytes(), plane.key.read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    _, foreign = write_certificate(other)
    trust = ssl.create_default_context(cafile=str(plane.cert))

    async def fetched(port: int = secure) -> str:
        url = f"https://127.0.0.1:{port}/"
        async with aiohttp.ClientSession() as client, client.get(url, ssl=trust) as response:
            return await response.text()

    async with backend("one") as one, backend("two") as two, running(options(plane, tmp_path)):
        tls = listener("https", secure, "http", "pair")
        await plane.served(website(port, one, tls, secret("pair", cert, key)))
        assert await fetched() == "one"
        bad = secret(
            "pair", cert, foreign.read_bytes(), origins=(Origin("Secret", "shop", "pair"),)
        )
        report = await plane.served(website(port, two, tls, bad))
        (refused,) = report.instances[0].rejected
        assert refused.origins == (Origin("Secret", "shop", "pair"),)
        assert "key" in refused.reason.lower()
        assert "BEGIN" not in refused.reason
        assert await fetched() == "two"
        # Envoy keeps the rejected certificate for new users, until it gets the previous one again.
        more = listener("later", later, "http", "pair")
        report = await plane.served(website(port, two, tls, more, bad))
        assert report.instances[0].rejected == (refused,)
        assert await fetched(later) == "two"


async def test_endpoints_beside_rejected_ones_are_served(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port, names = free_port(), [f"c{number}" for number in range(12)]
    hosts = routes("http", *((name, name) for name in names), ("*", "web"))
    clusters = [cluster(name) for name in names]
    async with backend("one") as one, backend("two") as two, running(options(plane, tmp_path)):
        await plane.served(
            website(port, one, hosts, *clusters, *(endpoints(n, one) for n in names))
        )
        addresses = {name: ("no-address", 1) if name in ("c3", "c8") else two for name in names}
        changed = [endpoints(name, address) for name, address in addresses.items()]
        plane.publish(website(port, two, hosts, *clusters, *changed))
        report = await plane.until(lambda report: report.programmed)
        assert report.instances[0].error.count("ClusterLoadAssignment") == 2
        answers = [await get(port, name) for name in names if name not in ("c3", "c8")]
        assert answers == [(200, "two")] * 10


async def test_rejected_new_certificate_is_named_and_valid_one_is_served(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port, good, weak = free_port(), free_port(), free_port()
    cert, key = plane.cert.read_bytes(), plane.key.read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    foreign = write_certificate(other)[1].read_bytes()
    origins = (Origin("Secret", "shop", "weak"),)
    async with backend("one") as one, running(options(plane, tmp_path)):
        await plane.served(website(port, one))
        listeners = listener("good", good, "http", "good"), listener("weak", weak, "http", "weak")
        secrets = secret("good", cert, key), secret("weak", cert, foreign, origins=origins)
        report = await plane.served(website(port, one, *listeners, *secrets))
        (rejected,) = report.instances[0].rejected
        assert rejected.origins == origins
