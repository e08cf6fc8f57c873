"""`gatehouse top`: counters of two readings become rates, shares and quantiles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from gatehouse.cli.top import top_lines
from gatehouse.inspection.connection_rates import (
    CONNECTION_SOURCES,
    ConnectionRate,
    connection_rates,
)
from gatehouse.inspection.data_plane_metrics import MetricsPage, MetricsReader
from gatehouse.inspection.request_rates import (
    SOURCES,
    RateSource,
    RequestRate,
    growth,
    parse_page,
    quantile,
    request_rates,
)
from gatehouse.inspection.traffic_report import TrafficReport
from gatehouse.kube import client as kube
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken

ROUTE, BACKEND = SOURCES["route"], SOURCES["backend"]


def page(good: int, bad: int, slow: int = 0, route: str = "shop/api/0") -> str:
    """Return a page: requests below 10 ms are good or bad, others slow; 4 in 100 ms."""
    requests = "gatehouse_route_requests_total"
    duration = "gatehouse_route_request_duration_seconds"
    return f"""# TYPE {requests} counter
{requests}{{route="{route}",method="GET",status_class="2xx"}} {good + slow}
{requests}{{route="{route}",method="POST",status_class="5xx"}} {bad}
# TYPE {duration} histogram
{duration}_bucket{{route="{route}",le="0.01"}} {good + bad}
{duration}_bucket{{route="{route}",le="0.1"}} {good + bad + slow}
{duration}_bucket{{route="{route}",le="+Inf"}} {good + bad + slow}
{duration}_sum{{route="{route}"}} 1
{duration}_count{{route="{route}"}} {good + bad + slow}
# TYPE gatehouse_route_bytes_total counter
gatehouse_route_bytes_total{{route="{route}",direction="sent"}} {100 * good}
gatehouse_route_bytes_total{{route="{route}",direction="received"}} 7
# TYPE gatehouse_route_retries_total counter
gatehouse_route_retries_total{{route="{route}"}} {slow}
# TYPE gatehouse_backend_requests_total counter
gatehouse_backend_requests_total{{backend="Service/shop/api",status_class="4xx"}} {good}
"""


def measured(
    *pages: tuple[str, str], source: RateSource = ROUTE, seconds: float = 2
) -> list[RequestRate]:
    growths = [
        growth(parse_page(old, source.families), parse_page(new, source.families))
        for old, new in pages
    ]
    return request_rates(growths, source, seconds)


def test_requests_of_all_pods_are_added() -> None:
    [row] = measured((page(10, 0), page(16, 2)), (page(0, 0), page(8, 0, slow=4)))
    assert row.name == "shop/api/0"
    assert row.requests_per_second == (6 + 2 + 8 + 4) / 2
    assert row.server_errors == 2 / 20
    assert row.client_errors == 0
    assert row.retries_per_second == 2
    assert row.sent_bytes_per_second == 700
    assert row.median_seconds == pytest.approx(0.01 * 10 / 16)
    assert row.p99_seconds == pytest.approx(0.01 + 0.09 * 3.8 / 4)


def connection_page(good: int, failed: int, slow: int = 0) -> str:
    """Return a page of L4 metrics: connections last below 1 s; slow ones up to 10 s."""
    duration = "gatehouse_route_connection_duration_seconds"
    total = good + failed + slow
    return f"""# TYPE gatehouse_route_connections_total counter
gatehouse_route_connections_total{{route="db/tcp/0",protocol="TCP",reason=""}} {good + slow}
gatehouse_route_connections_total{{route="db/tcp/0",protocol="UDP",reason="no_endpoint"}} {failed}
# TYPE {duration} histogram
{duration}_bucket{{route="db/tcp/0",le="1.0"}} {good + failed}
{duration}_bucket{{route="db/tcp/0",le="10.0"}} {total}
{duration}_bucket{{route="db/tcp/0",le="+Inf"}} {total}
# TYPE gatehouse_route_connection_bytes_total counter
gatehouse_route_connection_bytes_total{{route="db/tcp/0",direction="sent"}} {100 * good}
gatehouse_route_connection_bytes_total{{route="db/tcp/0",direction="received"}} {10 * good}
# TYPE gatehouse_backend_connections_total counter
gatehouse_backend_connections_total{{backend="Service/db/s",reason=""}} {good}
gatehouse_backend_connections_total{{backend="Service/db/s",reason="no_endpoint"}} {failed}
"""


def measured_connections(before: str, after: str, by: str = "route") -> list[ConnectionRate]:
    source = CONNECTION_SOURCES[by]
    pages = (parse_page(text, source.families) for text in (before, after))
    return connection_rates([growth(*pages)], source, 2)


def test_connections_of_an_l4_route_have_rates_failures_durations_and_bytes() -> None:
    [row] = measured_connections(connection_page(10, 0), connection_page(16, 2, slow=2))
    assert (row.name, row.connections_per_second, row.failed) == ("db/tcp/0", 5, 0.2)
    assert (row.received_bytes_per_second, row.sent_bytes_per_second) == (30, 300)
    assert row.median_seconds == pytest.approx(5 / 8)
    assert row.p99_seconds == pytest.approx(1 + 9 * 1.9 / 2)


def test_connections_by_backend_have_no_durations() -> None:
    rows = measured_connections(connection_page(10, 0), connection_page(16, 2), "backend")
    assert rows == [ConnectionRate("Service/db/s", 4, 0.25)]


def test_requests_and_connections_of_one_page_are_apart() -> None:
    families = (*ROUTE.families, *CONNECTION_SOURCES["route"].families)
    before, after = (
        parse_page(page(number, 0) + connection_page(number, 0), families) for number in (1, 5)
    )
    grown = [growth(before, after)]
    assert [row.name for row in request_rates(grown, ROUTE, 1)] == ["shop/api/0"]
    rows = connection_rates(grown, CONNECTION_SOURCES["route"], 1)
    assert [row.name for row in rows] == ["db/tcp/0"]


def test_text_has_a_second_table_if_there_are_connections() -> None:
    rows = (ConnectionRate("db/tcp/0", 12.5, 0.5, 0.25, 90.0, 1024, 2048), ConnectionRate("", 1, 1))
    report = TrafficReport(1, 2.0, (RequestRate("shop/api/0", 1, 0, 0),), rows)
    lines = list(top_lines(report, "route", 20, 0))
    assert lines[4] == ""
    assert lines[5].split("  ")[0] == "L4 ROUTE"
    assert lines[5].split()[2:] == ["CONN/S", "FAILED", "P50", "P99", "RECEIVED/S", "SENT/S"]
    assert lines[6].split() == [
        *("db/tcp/0", "12.5", "50.0%", "0.25", "s", "90", "s", "1", "KiB", "2", "KiB")
    ]
    assert lines[7].startswith("(no route)")
    assert list(top_lines(report, "route", 1, 0))[-1] == "and 1 more: --limit 0 shows all"
    by_backend = list(top_lines(report, "backend", 20, 0))
    assert by_backend[5].split() == ["L4", "BACKEND", "CONN/S", "FAILED"]


def test_backends_have_no_durations() -> None:
    [row] = measured((page(10, 0), page(30, 0)), source=BACKEND)
    assert row == RequestRate("Service/shop/api", 10, 1.0, 0, status_classes={"4xx": 10})


def test_counter_that_began_again_counts_its_value() -> None:
    [row] = measured((page(1000, 0), page(6, 0)))
    assert row.requests_per_second == 3


def test_busiest_route_is_first() -> None:
    quiet = page(1, 0, route="shop/quiet/0"), page(2, 0, route="shop/quiet/0")
    busy = page(1, 0, route="shop/zz/0"), page(9, 0, route="shop/zz/0")
    assert [row.name for row in measured(quiet, busy)] == ["shop/zz/0", "shop/quiet/0"]


@pytest.mark.parametrize(
    ("share", "buckets", "expected"),
    [
        (0.5, {}, None),
        (0.5, {1.0: 0, float("inf"): 0}, None),
        (0.5, {1.0: 10, float("inf"): 10}, 0.5),
        (0.99, {1.0: 50, 2.0: 100, float("inf"): 100}, 1.98),
        (0.99, {1.0: 50, float("inf"): 100}, 1.0),
        (0.5, {1.0: 0, 2.0: 10, float("inf"): 10}, 1.5),
    ],
)
def test_quantile_is_interpolated(
    share: float, buckets: dict[float, float], expected: float | None
) -> None:
    assert quantile(share, buckets) == expected


def test_text_has_a_row_for_each_route_and_hides_no_problem() -> None:
    rows = (
        RequestRate("shop/api/0", 12.5, 0.01, 0.5, 0.0123, 1.5, 0.5, 2048),
        RequestRate("", 1, 1.0, 0),
    )
    report = TrafficReport(2, 2.0, rows, problems=("shop/web-1: \x1b[2Jgone",))
    lines = list(top_lines(report, "route", 20, 0))
    assert lines[0] == "2 data planes, 2.0 s: 13.5 requests/s, 46.3% of them 5xx"
    assert "\x1b" not in lines[1]
    assert lines[3].split() == ["ROUTE", "REQ/S", "4XX", "5XX", "P50", "P99", "RETRIES/S", "SENT/S"]
    assert lines[4].split("  ")[0] == "shop/api/0"
    assert lines[4].split() == [
        *("shop/api/0", "12.5", "1.0%", "50.0%", "12.3", "ms", "1.5e+03", "ms", "0.5", "2", "KiB")
    ]
    assert lines[5].startswith("(no route)")
    assert list(top_lines(report, "route", 1, 0))[-1] == "and 1 more: --limit 0 shows all"
    assert list(top_lines(report, "backend", 1, 0))[3].split() == [
        *("BACKEND", "REQ/S", "4XX", "5XX")
    ]


@pytest.fixture
async def apiserver() -> AsyncIterator[tuple[str, list[str]]]:
    """Serve one Pod's metrics as kube-apiserver does; return the URL and the requested paths."""
    requested: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        requested.append(request.path)
        if request.path != "/api/v1/namespaces/shop/pods/web-0:9113/proxy/metrics":
            return web.json_response({"kind": "Status", "message": "no such Pod"}, status=404)
        return web.Response(text=page(1, 0))

    application = web.Application()
    application.router.add_get("/{path:.*}", serve)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", requested
    await runner.cleanup()


def pod(name: str, address: str = "127.0.0.1") -> dict[str, Any]:
    # Nothing listens on port 9 of this machine.
    port = "9113" if name == "web-0" else "9"
    metadata = {"namespace": "shop", "name": name, "annotations": {"prometheus.io/port": port}}
    return {"metadata": metadata, "status": {"podIP": address} if address else {}}


async def test_unreachable_pod_is_read_through_the_api_server(
    apiserver: tuple[str, list[str]],
) -> None:
    url, requested = apiserver
    async with kube.Client(Configuration(server=url, tokens=StaticToken())) as client:
        reader = MetricsReader(client)
        pages = await reader.read([pod("web-0"), pod("web-1"), pod("web-2", "")])
        assert pages[0] == MetricsPage("shop/web-0", page(1, 0))
        assert pages[1].problem.startswith("http://127.0.0.1:9/metrics is not reachable, ")
        assert "no such Pod" in pages[1].problem
        assert pages[2] == MetricsPage("shop/web-2", problem="has no address yet")
        assert len(requested) == 2
