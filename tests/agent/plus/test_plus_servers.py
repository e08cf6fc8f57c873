"""Differences between desired and present servers of an NGINX Plus upstream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from fakes.nginx_plus import FakePlus, Fault, Plus, Upstream
from gatehouse.agent.nginx.plus import actions, client, metrics, server_diff, upstreams
from gatehouse.dataplane.endpoints import WeightedEndpoint
from gatehouse.wire.mpi.v1 import command_pb2

ONE, TWO, THREE = (WeightedEndpoint(f"10.0.0.{n}", 80) for n in (1, 2, 3))


def shown(*endpoints: WeightedEndpoint, **other: Any) -> list[dict[str, Any]]:
    """Return servers in the format of the API."""
    upstream = Upstream("http", "u", zone="u")
    for server in server_diff.desired_servers(endpoints):
        upstream.add({**server, **other}, None, 9)
    return [server.to_api("http") for server in upstream.servers.values()]


@pytest.mark.parametrize(
    ("present", "desired", "expected"),
    [
        ((ONE,), (ONE,), server_diff.ServerChanges()),
        (
            (ONE,),
            (ONE, TWO),
            server_diff.ServerChanges(add=tuple(server_diff.desired_servers((TWO,)))),
        ),
        ((ONE, TWO), (TWO,), server_diff.ServerChanges(remove=(0,))),
        (
            (ONE,),
            (TWO,),
            server_diff.ServerChanges(tuple(server_diff.desired_servers((TWO,))), (), (0,)),
        ),
        ((ONE, ONE), (ONE,), server_diff.ServerChanges(remove=(1,))),
        (
            (ONE,),
            (WeightedEndpoint("10.0.0.1", 80, 7),),
            server_diff.ServerChanges(change=((0, {"weight": 7}),)),
        ),
        (
            (WeightedEndpoint("10.0.0.1", 80, 7),),
            (ONE,),
            server_diff.ServerChanges(change=((0, {"weight": 1}),)),
        ),
        (
            (WeightedEndpoint("fd00::1", 80),),
            (WeightedEndpoint("fd00:0::1", 80),),
            server_diff.ServerChanges(),
        ),
        ((), (), server_diff.ServerChanges()),
    ],
)
def test_diff_contains_only_required_changes(
    present: tuple[WeightedEndpoint, ...],
    desired: tuple[WeightedEndpoint, ...],
    expected: server_diff.ServerChanges,
) -> None:
    assert server_diff.diff(shown(*present), server_diff.desired_servers(desired)) == expected


def test_diff_resets_foreign_server_parameters_to_defaults() -> None:
    difference = server_diff.diff(
        shown(ONE, max_conns=5, fail_timeout="1s"), server_diff.desired_servers((ONE,))
    )
    assert difference.change == ((0, {"max_conns": 0, "fail_timeout": "10s"}),)
    difference = server_diff.diff(
        [{**shown(ONE)[0], "drain": True}], server_diff.desired_servers((ONE,))
    )
    assert difference.change == ((0, {"drain": False, "down": False}),)


def test_diff_replaces_server_when_backup_flag_differs() -> None:
    difference = server_diff.diff(shown(ONE, backup=True), server_diff.desired_servers((ONE,)))
    assert (len(difference.add), difference.remove) == (1, (0,))


def test_diff_leaves_addresses_of_hostname_to_nginx() -> None:
    upstream = Upstream("http", "u", zone="u")
    names = {"a.example": ["10.0.0.1", "10.0.0.2"]}
    upstream.add({"server": "a.example"}, names, 9)
    present = [server.to_api("http") for server in upstream.servers.values()]
    assert not server_diff.diff(present, [{"server": "A.example:80"}])
    assert server_diff.diff(present, []).remove == (0,)


ENDPOINTS = st.lists(
    st.builds(
        WeightedEndpoint,
        st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1"]),
        st.just(80),
        st.integers(1, 3),
    ),
    max_size=5,
)


@given(ENDPOINTS, ENDPOINTS)
def test_applied_diff_produces_desired_servers(
    present: list[WeightedEndpoint], desired: list[WeightedEndpoint]
) -> None:
    upstream = Upstream("http", "u", zone="u")
    for server in server_diff.desired_servers(tuple(present)):
        upstream.add(server, None, 9)
    difference = server_diff.diff(shown(*present), server_diff.desired_servers(tuple(desired)))
    for server in difference.add:
        upstream.add(server, None, 9)
    for number, changed in difference.change:
        upstream.change(str(number), changed, 9)
    for number in difference.remove:
        upstream.remove(str(number))
    after = [server.to_api("http") for server in upstream.servers.values()]
    once = {endpoint_server.encoded: endpoint_server for endpoint_server in reversed(desired)}
    assert server_diff.servers_match(tuple(once.values()), upstream.status()["peers"])
    assert not server_diff.diff(after, server_diff.desired_servers(tuple(desired)))


@pytest.fixture
def fake() -> FakePlus:
    plus = Plus(Upstream("http", "u", zone="u"), Upstream("stream", "s", zone="s"))
    plus.server_zones = {"http": ['a"b'], "stream": ["tcp:9000"]}
    return FakePlus(plus)


def struct(**server: Any) -> struct_pb2.Struct:
    return json_format.ParseDict(server, struct_pb2.Struct())


def update(*servers_sent: struct_pb2.Struct, upstream: str = "u") -> command_pb2.NGINXPlusAction:
    servers = command_pb2.UpdateHTTPUpstreamServers(
        http_upstream_name=upstream, servers=servers_sent
    )
    return command_pb2.NGINXPlusAction(update_http_upstream_servers=servers)


async def test_action_sets_servers_of_upstream(fake: FakePlus, tmp_path: Path) -> None:
    socket = tmp_path / "api.sock"
    async with fake.serving(socket):
        done = await actions.act(socket, update(struct(server="10.0.0.1:80", weight=2)))
        assert (done.message, done.error) == ("Successfully updated HTTP Upstreams", "")
        done = await actions.act(
            socket, update(struct(server="10.0.0.1"), struct(server="[::1]:80"))
        )
        assert done.error == ""
        stream = command_pb2.UpdateStreamServers(upstream_stream_name="s")
        stream.servers.append(struct(server="10.0.0.1:53", fail_timeout="1s"))
        action = command_pb2.NGINXPlusAction(update_stream_servers=stream)
        done = await actions.act(socket, action)
        assert done.message == "Successfully updated stream upstream servers"
        assert [(call.method, call.body) for call in fake.change_calls()] == [
            ("POST", {"server": "10.0.0.1:80", "weight": 2}),
            ("POST", {"server": "[::1]:80"}),
            ("PATCH", {"weight": 1}),
            ("POST", {"server": "10.0.0.1:53", "fail_timeout": "1s"}),
        ]


async def test_action_returns_servers_and_upstreams(fake: FakePlus, tmp_path: Path) -> None:
    socket = tmp_path / "api.sock"
    async with fake.serving(socket):
        await actions.act(socket, update(struct(server="10.0.0.1:80")))
        servers_of = command_pb2.GetHTTPUpstreamServers(http_upstream_name="u")
        action = command_pb2.NGINXPlusAction(get_http_upstream_servers=servers_of)
        assert '"server":"10.0.0.1:80"' in (await actions.act(socket, action)).message
        action = command_pb2.NGINXPlusAction(get_upstreams=command_pb2.GetUpstreams())
        assert (await actions.act(socket, action)).message.startswith('{"u":{"peers":[')
        action = command_pb2.NGINXPlusAction(get_stream_upstreams=command_pb2.GetStreamUpstreams())
        assert (await actions.act(socket, action)).message.startswith('{"s":{"peers":[]')


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (update(upstream="x"), "404 UpstreamNotFound: upstream not found"),
        (update(struct(weight=1)), "\"server\" missing in {'weight': 1.0}"),
        (update(struct(server="10.0.0.1", weight=0)), '400 UpstreamBadWeight: invalid "weight"'),
        (command_pb2.NGINXPlusAction(), "None is not supported by this agent"),
    ],
)
async def test_failed_action_reports_reason(
    fake: FakePlus, tmp_path: Path, action: command_pb2.NGINXPlusAction, error: str
) -> None:
    socket = tmp_path / "api.sock"
    async with fake.serving(socket):
        done = await actions.act(socket, action)
        assert (done.message, done.error) == ("", error)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(status=502, garbage="<html>"), "status 502 with a body that is not JSON"),
        (Fault(cut=True), "connection closed without a response|Connection reset"),
        (Fault(delay=2.0), "no response within 0.2 s"),
        (Fault(status=503, code="Busy", text="later"), "503 Busy: later"),
    ],
)
async def test_failed_api_request_raises_error(
    fake: FakePlus, tmp_path: Path, fault: Fault, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "API_TIMEOUT_SECONDS", 0.2)
    fake.faults.append(fault)
    async with fake.serving(tmp_path / "api.sock"):
        with pytest.raises(client.PlusApiError, match=error):
            await client.Api(tmp_path / "api.sock").get("nginx")


async def test_unreachable_api_raises_error(tmp_path: Path) -> None:
    with pytest.raises(client.PlusApiError, match=r"none\.sock"):
        await client.Api(tmp_path / "none.sock").get("nginx")
    assert (await metrics.read(tmp_path / "none.sock")).samples == []


async def test_synchronise_ignores_server_that_is_already_removed(
    fake: FakePlus, tmp_path: Path
) -> None:
    socket = tmp_path / "api.sock"
    fake.plus.upstreams["http", "u"].load("10.0.0.1:80")
    fake.faults.append(
        Fault("DELETE", status=404, code="UpstreamServerNotFound", text="server not found")
    )
    async with fake.serving(socket):
        await upstreams.synchronise_servers(client.Api(socket), "http", "u", [])


async def test_metrics_have_names_and_labels(fake: FakePlus, tmp_path: Path) -> None:
    socket = tmp_path / "api.sock"
    fake.plus.upstreams["stream", "s"].load("10.0.0.1:53 down")
    async with fake.serving(socket):
        samples = (await metrics.read(socket)).samples
        labelled_samples = {
            (sample.name, *sample.labels.values()): (str(sample.kind), float(sample.value))
            for sample in samples
        }
        server, peer = "nginx_plus_http_server", "nginx_plus_stream_upstream_server"
        expected = {
            (f"{server}_responses", 'a"b', "5xx"): ("counter", 0.0),
            ("nginx_plus_stream_server_sessions", "tcp:9000", "2xx"): ("counter", 0.0),
            (f"{peer}_up", "s", "10.0.0.1:53"): ("gauge", 0.0),
            (f"{peer}_connections", "s", "10.0.0.1:53"): ("counter", 0.0),
        }
        assert expected.items() <= labelled_samples.items()
        fake.plus.stream = False
        samples = (await metrics.read(socket)).samples
        assert {sample.name.split("_")[2] for sample in samples} == {"http"}
