"""A host at rest gets few requests, and external changes are repaired within one check."""

from __future__ import annotations

import pytest

from fakes.hosts import JITTER, plus, running_host
from fakes.nginx_plus import Fault
from gatehouse.dataplane.nginx_plus import PlusServer
from gatehouse.transports.nginx_plus import host_state

WEB = "http/web"
A, B = "10.0.0.1:30080", "10.0.0.2:30080"
CHECK = host_state.PROBE_INTERVAL_SECONDS + JITTER
MANY = [f"http/u{number}" for number in range(30)]


@pytest.mark.parametrize(
    ("names", "calls"),
    [
        ([WEB, "http/api", "http/x"], ["GET /http/upstreams"]),
        (MANY, ["GET /http/upstreams"]),
        ([WEB, "stream/db"], ["GET /http/upstreams", "GET /stream/upstreams"]),
    ],
    ids=["three", "thirty", "two contexts"],
)
async def test_check_at_rest_is_one_request_for_each_context(
    names: list[str], calls: list[str]
) -> None:
    async with running_host(plus(*names)) as host:
        await host.set_desired({name: [PlusServer(A, weight=5), B] for name in names})
        host.calls()
        for _ in range(3):
            await host.pass_(CHECK)
        assert host.calls() == calls * 3
        assert host.worker.knowledge.drifts == 0


async def test_two_hosts_get_six_requests_in_30_s() -> None:
    count = 0
    for _ in range(2):
        async with running_host(plus(WEB, "http/api")) as host:
            await host.set_desired({WEB: [A], "http/api": [B]})
            host.calls()
            for _ in range(30):
                await host.pass_(1.0)
            count += len(host.calls())
    assert count <= 6


async def test_server_added_by_hand_is_removed_with_the_next_check() -> None:
    async with running_host(plus(*MANY)) as host:
        await host.set_desired({name: [A] for name in MANY})
        await host.pass_(CHECK)
        host.upstream(MANY[-1]).add({"server": "192.0.2.1:80"}, None, 9)
        await host.pass_(CHECK)
        assert host.held(MANY[-1]) == [A]


@pytest.mark.parametrize("change", [{"weight": 3}, {"down": True}, {"drain": True}])
async def test_parameter_in_the_overview_is_restored_with_the_next_check(
    change: dict[str, object],
) -> None:
    async with running_host(plus(*MANY)) as host:
        await host.set_desired({name: [A] for name in MANY})
        upstream = host.upstream(MANY[-1])
        upstream.change("0", change, 9)
        await host.pass_(CHECK)
        (server,) = upstream.servers.values()
        assert (server.parameters["weight"], server.parameters["down"], server.drain) == (
            *(1, False),
            False,
        )


async def test_parameter_outside_the_overview_is_restored_within_the_resync_interval() -> None:
    async with running_host(plus(*MANY)) as host:
        await host.set_desired({name: [A] for name in MANY}, resync=60)
        upstream = host.upstream(MANY[-1])
        upstream.change("0", {"max_fails": 9}, 9)
        for _ in range(6):
            await host.pass_(CHECK)
        assert upstream.servers[0].parameters["max_fails"] == 1


async def test_host_restarted_without_state_is_refilled_with_the_next_check() -> None:
    async with running_host(plus(*MANY)) as host:
        await host.set_desired({name: [A, B] for name in MANY})
        host.fake.plus = plus(*MANY)
        host.fake.plus.generation = 2
        await host.pass_(CHECK)
        assert [host.held(name) for name in MANY] == [[A, B]] * 30


async def test_host_that_rejects_overviews_is_checked_by_upstream() -> None:
    async with running_host(plus(WEB)) as host:
        host.fake.faults.append(Fault("GET", "/http/upstreams", times=-1, status=403))
        await host.set_desired({WEB: [A]})
        host.upstream(WEB).add({"server": B}, None, 9)
        await host.pass_(CHECK)
        assert host.held(WEB) == [A]
        host.calls()
        await host.pass_(CHECK)
        assert host.calls() == ["GET /nginx", "GET /http/upstreams/web/servers"]
        assert host.reports[-1].trouble == ""


async def test_host_with_many_servers_is_checked_by_upstream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_state, "OVERVIEW_MAX_SERVERS", 1)
    async with running_host(plus(WEB)) as host:
        await host.set_desired({WEB: [A, B]})
        host.calls()
        await host.pass_(CHECK)
        assert host.calls() == ["GET /nginx", "GET /http/upstreams/web/servers"]
