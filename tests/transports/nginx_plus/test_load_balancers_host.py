"""An NGINX Plus host converges to the desired state, with few requests, over real HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.hosts import JITTER, Host, desired_upstreams, plus, running_host
from fakes.nginx_plus import Fault, Upstream
from gatehouse.dataplane.nginx_plus import PlusServer
from gatehouse.transports.nginx_plus.client import PlusClient

WEB = "http/web"
A, B, C = "10.0.0.1:30080", "10.0.0.2:30080", "10.0.0.3:30080"
SERVERS = "/http/upstreams/web/servers"


async def test_servers_are_added_and_removed_with_one_request_each() -> None:
    async with running_host(plus(WEB, "stream/dns")) as host:
        await host.set_desired({WEB: [A, B], "stream/dns": [A]})
        assert (host.held(WEB), host.held("stream/dns")) == ([A, B], [A])
        host.calls()
        await host.set_desired({WEB: [B, C], "stream/dns": [A]})
        assert host.held(WEB) == [B, C]
        assert host.calls() == [f"POST {SERVERS}", f"DELETE {SERVERS}/0"]
        await host.set_desired({WEB: [B, C], "stream/dns": [A]})
        assert host.calls() == []


async def test_restarted_host_loses_no_server_to_ids_from_before_the_restart() -> None:
    async with running_host(plus(WEB)) as host:
        await host.set_desired({WEB: [A, B, C]})
        await host.set_desired({WEB: [B, C]})
        upstream = host.upstream(WEB)
        assert sorted(upstream.servers) == [1, 2]
        # It restarts with its state file: what was server 1 is server 0.
        upstream.servers.clear()
        upstream._next = 0
        for address in (B, C):
            upstream.load(address)
        host.fake.plus.generation += 1
        host.calls()
        await host.set_desired({WEB: [C]})
        await host.pass_(JITTER)
        assert host.held(WEB) == [C]
        assert f"DELETE {SERVERS}/1" not in host.calls()


async def test_server_from_before_a_restart_is_drained_for_the_full_time() -> None:
    async with running_host(plus(WEB)) as host:
        await host.set_desired({WEB: [A, B]}, drain=30)
        await host.set_desired({WEB: [B]}, drain=30)
        upstream = host.upstream(WEB)
        assert upstream.servers[0].drain
        upstream.servers.clear()
        upstream._next = 0
        for address in (C, B):
            upstream.load(address)
        host.fake.plus.generation += 1
        await host.pass_(31)
        assert host.held(WEB) == [B, C]
        assert upstream.servers[0].drain
        await host.pass_(31)
        assert host.held(WEB) == [B]


async def test_changes_are_debounced_and_the_last_one_wins() -> None:
    async with running_host(plus(WEB)) as host:
        await host.set_desired({WEB: [A]})
        host.calls()
        for servers in ([A, B], [B], [A, C]):
            host.worker.set_desired(desired_upstreams({WEB: list(servers)}))
        await host.pass_(JITTER)
        assert host.held(WEB) == [A, C]
        assert host.calls() == [f"POST {SERVERS}"]


async def test_unowned_upstreams_are_not_read() -> None:
    model = plus(WEB, "http/other")
    model.upstreams["http", "other"].load("192.0.2.1:80")
    async with running_host(model) as host:
        await host.set_desired({WEB: [A]})
        await host.pass_(600)
        assert host.held("http/other") == ["192.0.2.1:80"]
        assert not [call for call in host.calls() if "other" in call]


async def test_external_changes_of_owned_servers_are_reverted() -> None:
    async with running_host(plus(WEB)) as host:
        await host.set_desired({WEB: [A, B]})
        upstream = host.upstream(WEB)
        upstream.remove("0")
        upstream.add({"server": "192.0.2.1:80"}, None, 9)
        upstream.change("1", {"weight": 7}, 9)
        await host.pass_(11)
        assert host.held(WEB) == [A, B]
        assert {server.parameters["weight"] for server in upstream.servers.values()} == {1}
        assert host.worker.knowledge.drifts == 1


async def test_duplicate_server_is_removed() -> None:
    model = plus(WEB)
    for _ in range(2):
        model.upstreams["http", "web"].load(A)
    async with running_host(model) as host:
        await host.set_desired({WEB: [A]})
        assert list(host.upstream(WEB).servers) == [0]


async def test_parameters_are_set_and_reset_to_nginx_defaults() -> None:
    async with running_host(plus(WEB)) as host:
        await host.set_desired({WEB: [PlusServer(A, weight=5, max_conns=10, fail_timeout="60s")]})
        (server,) = host.upstream(WEB).servers.values()
        assert (server.parameters["weight"], server.parameters["max_conns"]) == (5, 10)
        host.calls()
        await host.set_desired({WEB: [PlusServer(A, weight=5, fail_timeout="1m")]})
        assert server.parameters["max_conns"] == 0
        assert host.calls() == [f"PATCH {SERVERS}/0"]
        await host.pass_(11)
        assert not [call for call in host.calls() if not call.startswith("GET")]
        assert server.parameters["fail_timeout"] == "60s", "the same time in other words"


async def test_backup_server_is_replaced_because_backup_is_immutable() -> None:
    model = plus(WEB)
    model.upstreams["http", "web"].load(f"{A} backup")
    async with running_host(model) as host:
        await host.set_desired({WEB: [A]})
        (server,) = host.upstream(WEB).servers.values()
        assert (server.id, server.parameters["backup"]) == (1, False)


@pytest.mark.parametrize(("which", "word"), [("http/web", "drain"), ("stream/web", "down")])
async def test_removed_server_is_drained_first_when_configured(which: str, word: str) -> None:
    def leaving(host: Host) -> list[Any]:
        servers = host.upstream(which).servers.values()
        return [s.server for s in servers if s.drain or s.parameters["down"]]

    async with running_host(plus(which)) as host:
        await host.set_desired({which: [A, B]}, drain=60)
        await host.set_desired({which: [A]}, drain=60)
        assert (host.held(which), leaving(host)) == ([A, B], [B])
        await host.pass_(30)
        assert host.held(which) == [A, B]
        await host.set_desired({which: [A, B]}, drain=60)
        assert (host.held(which), leaving(host)) == ([A, B], []), "it came back"
        await host.set_desired({which: [A]}, drain=60)
        await host.pass_(61)
        assert host.held(which) == [A]
        assert host.reports[-1].behind == 0


async def test_released_upstream_is_emptied_and_reported() -> None:
    async with running_host(plus(WEB, "http/api")) as host:
        await host.set_desired({WEB: [A], "http/api": [A]})
        await host.set_desired({WEB: [A], "http/api": [], "http/gone": []})
        assert host.held("http/api") == []
        assert {str(upstream) for upstream in host.reports[-1].empty} == {"http/api", "http/gone"}
        assert host.reports[-1].trouble == ""


async def test_missing_or_static_upstream_is_reported_and_does_not_block_others() -> None:
    model = plus(WEB)
    model.upstreams["http", "static"] = Upstream("http", "static")
    async with running_host(model) as host:
        await host.set_desired({WEB: [A], "http/none": [A], "http/static": [A]})
        assert host.held(WEB) == [A]
        assert dict(host.reports[-1].failing) == {
            "http/none": "404 UpstreamNotFound: upstream not found",
            "http/static": "400 UpstreamStatic: upstream is static",
        }
        model.upstreams["http", "none"] = Upstream("http", "none", zone="none")
        await host.pass_(2 + JITTER)
        assert host.held("http/none") == [A]
        assert [which for which, _ in host.reports[-1].failing] == ["http/static"]


async def test_rejected_server_does_not_block_others_or_empty_the_upstream() -> None:
    async with running_host(plus(WEB)) as host:
        await host.set_desired({WEB: [A]})
        await host.set_desired({WEB: ["[::zz]:1", B]})
        assert host.held(WEB) == [B]
        assert "UpstreamBadAddress" in host.reports[-1].trouble
        await host.set_desired({WEB: ["[::zz]:1"]})
        assert host.held(WEB) == [B]


async def test_full_zone_is_updated_over_several_attempts() -> None:
    async with running_host(plus(WEB, room=2)) as host:
        await host.set_desired({WEB: [A, B]})
        await host.set_desired({WEB: [C, "10.0.0.4:1"]})
        assert "UpstreamOutOfMemory" in host.reports[-1].trouble
        for delay in (2, 4, 8):
            await host.pass_(delay + JITTER)
        assert host.held(WEB) == [C, "10.0.0.4:1"]
        assert host.reports[-1].trouble == ""


async def test_newest_common_api_version_is_used(monkeypatch: Any) -> None:
    monkeypatch.setattr("fakes.nginx_plus.api.VERSIONS", tuple(range(1, 8)))
    async with running_host(plus(WEB)) as host:
        await host.set_desired({WEB: [A]})
        assert (host.held(WEB), host.reports[-1].api) == ([A], 7)
        assert host.reports[-1].server == "nginx/1.29.3 nginx-plus-r36"


async def test_host_with_an_outdated_api_is_reported(monkeypatch: Any) -> None:
    monkeypatch.setattr("fakes.nginx_plus.api.VERSIONS", (1, 2, 3))
    async with running_host(plus(WEB)) as host:
        await host.set_desired({WEB: [A]})
        assert host.reports[-1].error == "API versions [1, 2, 3] are not supported, only 4 to 9"


@pytest.mark.parametrize(
    "fault",
    [
        Fault("POST", SERVERS, status=500),
        Fault("POST", SERVERS, status=502, garbage="<html>Bad Gateway</html>"),
        Fault("POST", SERVERS, cut=True),
        Fault("POST", SERVERS, cut=True, after=True),
        Fault("POST", SERVERS, status=500, after=True),
        Fault("GET", SERVERS, status=200, garbage='[{"id": 0, "ser'),
        Fault("GET", "/nginx", status=503),
        Fault("GET", "/nginx", cut=True, times=3),
    ],
    ids=lambda fault: f"{fault.method} {fault.path} {fault.status} cut={fault.cut} {fault.after}",
)
async def test_host_converges_on_the_next_attempt_after_any_response(
    fault: Fault,
) -> None:
    async with running_host(plus(WEB)) as host:
        host.fake.faults.append(fault)
        await host.set_desired({WEB: [A, B]})
        assert host.reports[-1].error
        await host.pass_(2 + JITTER)
        assert [server.server for server in host.upstream(WEB).servers.values()] in ([A, B], [B, A])
        assert (host.reports[-1].error, host.reports[-1].behind) == ("", 0)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("*", "/http/upstreams/a/*", times=-1, status=500), "500 InternalError"),
        (Fault("POST", "/http/upstreams/a/*", times=-1, cut=True), "disconnected"),
        (
            Fault("GET", "/http/upstreams/a/*", times=-1, status=200, garbage="[{"),
            "invalid response",
        ),
    ],
    ids=["500", "cut", "half"],
)
async def test_permanently_failing_upstream_does_not_block_others(fault: Fault, words: str) -> None:
    names = ("http/a", WEB, "http/x", "http/y", "http/z")
    others = names[1:]
    async with running_host(plus(*names)) as host:
        host.fake.faults.append(fault)
        await host.set_desired({name: [A] for name in names})
        await host.pass_(2 + JITTER)
        assert [host.held(name) for name in others] == [[A]] * 4
        (failing,) = host.reports[-1].failing
        assert (failing[0], words in failing[1]) == ("http/a", True)
        await host.set_desired({name: [B] for name in names})
        assert [host.held(name) for name in others] == [[B]] * 4
        host.fake.faults.clear()
        await host.pass_(61)
        assert host.held("http/a") == [B]
        assert (host.reports[-1].trouble, host.reports[-1].behind) == ("", 0)


async def test_unexpected_exception_does_not_end_the_worker(monkeypatch: Any) -> None:
    async with running_host(plus(WEB)) as host:
        with monkeypatch.context() as broken:
            broken.setattr(PlusClient, "servers", lambda *_: dict[str, Any]()["what"])
            await host.set_desired({WEB: [A]})
        assert "KeyError" in host.reports[-1].error
        await host.pass_(2 + JITTER)
        assert host.held(WEB) == [A]


async def test_host_without_write_access_is_reported() -> None:
    model = plus(WEB)
    model.write = False
    async with running_host(model) as host:
        await host.set_desired({WEB: [A]})
        assert host.reports[-1].error == "405 MethodDisabled: method disabled"


async def test_authorization_is_sent_and_its_rejection_reported() -> None:
    async with running_host(plus(WEB), authorization="ApiKey secret") as host:
        await host.set_desired({WEB: [A]})
        assert host.held(WEB) == [A]
        host.fake._authorization = "another"
        await host.pass_(11)
        assert host.reports[-1].error.startswith("401: response ")
        assert "secret" not in str(host.reports)


async def test_host_that_restarts_empty_gets_all_servers() -> None:
    async with running_host(plus(WEB)) as host:
        await host.set_desired({WEB: [A, B]})
        host.fake.plus = plus(WEB)
        host.fake.plus.generation = 7
        await host.pass_(11)
        assert host.held(WEB) == [A, B]
