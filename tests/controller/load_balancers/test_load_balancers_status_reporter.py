"""Reports about hosts: conditions, metrics, table, and parameters for NGINX Plus."""

from __future__ import annotations

import asyncio
from io import StringIO
from typing import Any, cast

import aiohttp
import pytest
from rich.console import Console

from fakes import virtual_time
from fakes.hosts import fleet, held, name, plus, running_host
from fakes.load_balancer_world import World, balancer, node, port, service
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.cli import status_load_balancers as cli
from gatehouse.compiler.backends.nginx_plus import GeneratedUpstreams, generate_upstreams
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.load_balancing import LoadBalancer
from gatehouse.controller.load_balancers import status_reporter
from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.controller.load_balancers.metrics import host_metrics
from gatehouse.controller.metrics import collector_registry
from gatehouse.dataplane.delivery import HostReport
from gatehouse.dataplane.nginx_plus import DesiredUpstreams, PlusServer, parse_nginx_time
from gatehouse.kube import client as kube
from gatehouse.runtime.health import HealthServer
from gatehouse.runtime.prometheus import page_of

NOW = "2026-01-01T00:00:00Z"
URLS = ("http://a/api", "http://b/api")
OBJECTS = (balancer(hosts=[{"url": url} for url in URLS]), node("n", "10.0.0.1"), service())


def said(*reports: HostReport, version: str = "v2") -> dict[str, dict[str, Any]]:
    compiled = World(*OBJECTS).compiled()
    status = front.balancer_status(compiled, {}, version, reports, 3)
    return {condition["type"]: condition for condition in status["conditions"]}


AGREES = HostReport(URLS[0], "v2")


@pytest.mark.parametrize(
    ("second", "status", "reason", "message"),
    [
        (HostReport(URLS[1], "v2"), "True", "Programmed", "2 hosts synchronized with 1 upstreams"),
        (HostReport(URLS[1], "v1"), "False", "Pending", "1 of 2 hosts are not synchronized"),
        (
            HostReport(URLS[1], "v2", error="cannot connect"),
            "False",
            "HostSyncFailed",
            "1 of 2 hosts: http://b/api: cannot connect",
        ),
        (
            HostReport(URLS[1], "v1", failing=(("http/x", "404 A: b"), ("http/y", "404 A: b"))),
            "False",
            "HostSyncFailed",
            "1 of 2 hosts: http://b/api: http/x: 404 A: b (and 1 more)",
        ),
    ],
)
def test_programmed_reports_versions_of_all_hosts(
    second: HostReport, status: str, reason: str, message: str
) -> None:
    programmed = said(AGREES, second)["Programmed"]
    assert (programmed["status"], programmed["reason"], programmed["message"]) == (
        status,
        reason,
        message,
    )
    assert programmed["observedGeneration"] == 3


def test_transition_time_is_kept_and_equal_status_is_not_written() -> None:
    compiled = World(*OBJECTS).compiled()
    pending = front.balancer_status(compiled, {}, "v2", [AGREES, HostReport(URLS[1])], 1)
    first = front.merge_balancer_status({"conditions": [{"type": "Other"}]}, pending, NOW)
    assert first is not None
    assert front.merge_balancer_status(first, pending, "later") is None
    done = front.balancer_status(compiled, {}, "v2", [AGREES, HostReport(URLS[1], "v2")], 1)
    second = front.merge_balancer_status(first, done, "later")
    assert second is not None
    times = {
        condition["type"]: condition.get("lastTransitionTime") for condition in second["conditions"]
    }
    assert times == {"Other": None, "Accepted": NOW, "Programmed": "later"}


async def test_metrics_of_every_host_are_exported() -> None:
    compiled = World(*OBJECTS).compiled()
    async with fleet(plus("http/web"), plus()) as (plus_fleet, fakes, hosts):
        assert isinstance(compiled.balancer, LoadBalancer)
        holdings = generate_upstreams(compiled.balancer).desired
        known = Balancer(("ExternalLoadBalancer", "nlk", "edge"), compiled, {})
        plus_fleet.want({known.name: (hosts, holdings)})
        await until(lambda: held(fakes[0]) == ["10.0.0.1:30080"])
        await until(lambda: fakes[1].calls != [] and fakes[1].calls[-1].status == 404)
        collected = collector_registry(lambda: host_metrics([known], plus_fleet))
        server, where = HealthServer(lambda: "", page_of(collected)), free_port()
        await server.start(f"127.0.0.1:{where}")
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{where}/metrics") as response,
            ):
                text = await response.text()
        finally:
            await server.stop()
    prefix = "gatehouse_controller_load_balancer_"
    labels = f'host="{hosts[0].url}",load_balancer="ExternalLoadBalancer nlk/edge"'
    assert f"{prefix}up{{{labels}}} 1.0" in text
    posts = f'{prefix}requests_total{{{labels},method="POST",outcome="201"}} 1.0'
    assert posts in text
    assert f"{prefix}last_sync_timestamp_seconds{{{labels}}}" in text
    other = f'host="{hosts[1].url}",load_balancer="ExternalLoadBalancer nlk/edge"'
    assert f"{prefix}retries_total{{{other}}} 1.0" in text


def test_number_of_events_of_a_failing_host_is_limited() -> None:
    world = World(*OBJECTS)
    known = Balancer(("ExternalLoadBalancer", "nlk", "edge"), world.compiled(), {})
    failing = tuple((f"http/u{number}", "404 UpstreamNotFound: no") for number in range(500))
    known.reports[URLS[0]] = HostReport(URLS[0], failing=failing)
    reported = [
        problem
        for problem in status_reporter._problems(known)
        if problem.reason == "UpstreamSyncFailed"
    ]
    assert len(reported) == status_reporter.MAX_EVENTS + 1
    assert reported[-1].message == f"{URLS[0]}: more upstreams failed; Events show the first 10"


def test_status_table_has_a_row_for_each_host() -> None:
    compiled = World(*OBJECTS).compiled()
    behind = HostReport(URLS[1], "v1", "nginx/1.29.3", 9, failing=(("http/x", "404 A: b"),))
    status = front.balancer_status(
        compiled, {name("http/web"): ("Service", "a", "b")}, "v2", [AGREES, behind], 1
    )
    refused = {"conditions": [{"type": "Accepted", "status": "False", "message": "no Secret"}]}
    console = Console(width=160, record=True, file=StringIO())
    console.print(cli.hosts_table([("nlk/edge", status), ("nlk/bad", refused)]))
    rows = [line.split("│")[1:-1] for line in console.export_text().splitlines() if "nlk/" in line]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert cells == [
        ["nlk/edge", "http://a/api", "", "", "v2", "True", "1", ""],
        ["nlk/edge", "http://b/api", "nginx/1.29.3", "9", "v1", "False", "1", "http/x: 404 A: b"],
        ["nlk/bad", "", "", "", "", "False", "0", "no Secret"],
    ]


def test_unchanged_servers_keep_identity() -> None:
    world = World(*OBJECTS, service("other", port("nlk-other", 30081)))
    generated: list[GeneratedUpstreams] = []

    def rendered() -> DesiredUpstreams:
        generated.append(generate_upstreams(world.plus(), generated[-1] if generated else None))
        return generated[-1].desired

    first = rendered()
    world.put(node("m", "10.0.0.2"))
    world.remove(service("other"))
    world.own("http/other")
    second = rendered()
    web = name("http/web")
    assert second.upstreams[web].servers[1] is first.upstreams[web].servers[0]
    assert second.upstreams[name("http/other")].servers == ()
    assert first.version != second.version
    again = rendered()
    assert all(
        again.upstreams[upstream_name] is upstream
        for upstream_name, upstream in second.upstreams.items()
    )
    world.own()
    assert rendered().version == second.version, "an upstream that was emptied is no news"


@pytest.mark.parametrize(
    ("context", "says"),
    [
        ("http", PlusServer("10.0.0.1:30080", drain=True)),
        ("stream", PlusServer("10.0.0.1:30080", down=True)),
    ],
)
def test_draining_uses_the_field_of_the_context(context: str, says: PlusServer) -> None:
    world = World(
        balancer(nodes={"unschedulablePolicy": "Drain"}),
        node("n", "10.0.0.1", cordoned=True),
        service(annotations={"nginxinc.io/nlk-web": context}),
    )
    plus_balancer = world.plus()
    assert generate_upstreams(plus_balancer).desired.upstreams[name(f"{context}/web")].servers == (
        says,
    )


@pytest.mark.parametrize(
    ("text", "value"), [("10s", 10), ("1m", 60), ("1h30m", 5400), ("500ms", 0.5), ("7", 7)]
)
def test_nginx_times_are_parsed_to_seconds(text: str, value: float) -> None:
    assert parse_nginx_time(text) == value


def test_invalid_time_is_unequal_to_any_time() -> None:
    assert parse_nginx_time("soon") != parse_nginx_time("soon")


async def test_host_that_stores_different_values_is_reported() -> None:
    async with running_host(plus("http/web")) as host:
        upstream = host.upstream("http/web")
        real = upstream.add

        def add(body: Any, names: Any, version: int) -> Any:
            return real({**body, "weight": 9}, names, version)

        upstream.add = add  # type: ignore[method-assign]
        await host.set_desired({"http/web": ["10.0.0.1:80"]})
        assert "the host did not apply all servers and values" in host.reports[-1].trouble


def test_failed_report_is_not_repeated_when_load_balancer_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Server:
        attempts = 0

        async def patch(self, *_: object) -> None:
            self.attempts += 1
            raise kube.ApiError(500, "InternalError", "failed")

    async def main(lifetime: float) -> int:
        server = Server()
        compiled = World(*OBJECTS).compiled()
        known = Balancer(("ExternalLoadBalancer", "nlk", "edge"), compiled, {})
        reporter = status_reporter.StatusReporter(
            cast(kube.Client, server), lambda _: {"metadata": {}}
        )
        monkeypatch.setattr(reporter, "_record_events", lambda _: None)
        running = asyncio.create_task(reporter.run())
        reporter.enqueue(known)
        await asyncio.sleep(lifetime)
        reporter.forget(known.key)
        await asyncio.wait({running}, timeout=20.0)
        running.cancel()
        await asyncio.wait({running})
        return server.attempts

    assert virtual_time.run(main(1.0)) == 1
    assert virtual_time.run(main(11.0)) == 3
