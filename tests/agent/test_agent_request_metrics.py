"""Metrics of requests, counted from the lines that a proxy writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gatehouse.agent import bounded_series, counted_log
from gatehouse.agent.bounded_series import BoundedSeries
from gatehouse.agent.request_lines import ENVOY_LINES, NGINX_LINES, Format
from gatehouse.agent.request_metrics import RouteMetrics
from gatehouse.dataplane import request_log

LINE = b"shop/web/0\tService/shop/web\t\t200\tGET|0.004\t0.003\t0.003\t100\t200"


def counted(*lines: bytes, log_format: Format = NGINX_LINES) -> RouteMetrics:
    """Return the metrics of lines."""
    metrics = RouteMetrics(Path("unused"), log_format, {"pod": "p"})
    data = b"".join(line + b"\n" for line in lines)
    assert metrics.count(data) == len(data)
    return metrics


def value(metrics: RouteMetrics, name: str, **labels: str) -> float:
    """Return the sum of the values of a sample with these labels."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
        if sample.name == f"gatehouse_{name}" and sample.labels.items() >= labels.items()
    )


def dropped(metrics: RouteMetrics) -> float:
    """Return the number of bytes that were not counted."""
    return metrics.samples()[0].value


@pytest.mark.parametrize(
    ("numbers", "retries", "upstream"),
    [
        (b"0.100\t-\t-\t1\t2", 0, None),
        (b"0.100\t-\t0.000\t1\t2", 0, None),
        (b"0.100\t0.030\t0.050\t1\t2", 0, 0.03),
        (b"0.100\t-, -, 0.020\t0.001, 0.002, 0.050\t1\t2", 2, 0.02),
        (b"0.100\t0.010 : -, 0.070\t0.010 : 0.000, 0.080\t1\t2", 2, 0.07),
        (b"0.100\t0.010, -\t0.010, 0.000\t1\t2", 1, None),
    ],
)
def test_attempts_of_nginx_are_counted(
    numbers: bytes, retries: int, upstream: float | None
) -> None:
    metrics = counted(b"shop/web/0\tService/shop/web\t\t200\tGET|" + numbers)
    assert value(metrics, "route_retries_total", route="shop/web/0") == retries
    assert value(metrics, "route_upstream_duration_seconds_sum") == (upstream or 0)
    assert value(metrics, "route_upstream_duration_seconds_count") == (upstream is not None)
    assert value(metrics, "route_request_duration_seconds_sum") == 0.1
    assert not dropped(metrics)


def test_request_to_the_authenticator_is_none_for_the_backend() -> None:
    line = b"shop/web/0\tService/shop/web\tauthentication\t302\tGET|0.1\t0.1\t0.1\t1\t2"
    metrics = counted(line)
    assert value(metrics, "route_requests_total", status_class="3xx") == 1
    assert not value(metrics, "backend_requests_total")
    assert not value(metrics, "route_upstream_duration_seconds_count")


RESET = b"upstream_reset_before_response_started{"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\t502\tPOST|0.1\t-\t0.1\t1\t2", "connection_failure"),
        (b"\t504\tPOST|0.1\t-\t0.1\t1\t2", "timeout"),
        (b"\t499\tPOST|0.1\t-\t0.1\t1\t2", "client_closed"),
        (b"\t503\tPOST|0.1\t-\t0.1\t1\t2", "other"),
        (b"\t502\tPOST|0.1\t0.1\t0.1\t1\t2", ""),
        (b"\t009\tPOST|0.1\t0.1\t0.1\t1\t2", "backend_protocol"),
        # NGINX itself answers gRPC calls that failed.
        (b"connection_failure\t200\tPOST|0.1\t-\t0.1\t1\t2", "connection_failure"),
        (b"timeout\t200\tPOST|0.1\t-\t0.1\t1\t2", "timeout"),
    ],
)
def test_reason_of_nginx_is_counted(line: bytes, reason: str) -> None:
    metrics = counted(b"a/b/0\tService/a/s\t" + line)
    assert value(metrics, "backend_requests_total") == 1
    assert value(metrics, "backend_requests_total", backend="Service/a/s", reason=reason) == 1


@pytest.mark.parametrize(
    ("status", "reason", "is_failure"),
    [
        (b"503", "other", False),
        (b"503 no_healthy_upstream", "no_endpoint", False),
        (b"0 downstream_remote_disconnect", "client_closed", False),
        (b"503 " + RESET + b"remote_connection_failure|delayed_connect_error:_111}",
         "connection_failure", True),
        (b"503 " + RESET + b"x|TLS_error:|1:CERTIFICATE_VERIFY_FAILED:timeout}",
         "backend_certificate", True),
        (b"504 response_timeout", "timeout", True),
        (b"503 of_a_later_version", "other", False),
    ],
)  # fmt: skip
def test_reason_of_envoy_is_counted_and_reported(
    status: bytes, reason: str, is_failure: bool
) -> None:
    failures: list[tuple[str, str]] = []
    metrics = RouteMetrics(
        Path("unused"), ENVOY_LINES, {}, lambda *failure: failures.append(failure)
    )
    for upstream in (b"-", b"5"):
        metrics.count(b"a/b/0\tService/a/s\t" + status + b"\tGET|9\t" + upstream + b"\t1\t1\t2\n")
    assert value(metrics, "backend_requests_total", reason=reason) == 1
    assert value(metrics, "backend_requests_total", reason="") == 1
    details = status.partition(b" ")[2].decode()
    assert failures == ([("Service/a/s", details)] if is_failure else [])


def test_buckets_contain_their_upper_bound() -> None:
    lines = [b"a/b/0\t-\t200\tGET|%d\t-\t0\t1\t2" % ms for ms in (5, 6, 30_000, 30_001)]
    metrics = counted(*lines, log_format=ENVOY_LINES)
    name = "route_request_duration_seconds_bucket"
    bounds = {"0.005": 1, "0.01": 2, "10": 2, "30": 3, "+Inf": 4}
    assert {bound: value(metrics, name, le=bound) for bound in bounds} == bounds


MALFORMED = [
    b"", b"x", b"|", b"\t\t\t|\t\t\t\t", b"a/b/0\t\t\t200\tGET|0.1\t-\t-\tmany\t1",
    b"a/b/0\t\t\t200\tGET|0.1\t-\t-\t1\t1\t1", b"a/b/0\t200\tGET|0.1\t-\t-\t1\t1", b"\xff\x00|\n",
]  # fmt: skip


@pytest.mark.parametrize("log_format", [NGINX_LINES, ENVOY_LINES])
def test_malformed_lines_are_dropped_and_the_others_counted(log_format: Format) -> None:
    good = LINE if log_format is NGINX_LINES else b"a/b/0\t-\t200\tGET|1\t-\t0\t1\t2"
    metrics = counted(good, *MALFORMED, good, log_format=log_format)
    assert value(metrics, "route_requests_total") == 2
    assert dropped(metrics) >= sum(len(line) for line in MALFORMED)


def test_method_with_a_tab_forges_no_numbers() -> None:
    line = b"a/b/0\t-\t200\tGET\t|9\t9\t9\t9\t9|1\t-\t0\t10\t20"
    metrics = counted(line, log_format=ENVOY_LINES)
    assert value(metrics, "route_requests_total", method="other", status_class="2xx") == 1
    assert value(metrics, "route_bytes_total", direction="sent") == 20


def _lines(namespace: bytes, numbers: range) -> Iterator[bytes]:
    for number in numbers:
        yield b"%s/web/%d\tService/%s/s-%d\t\t200\tGET|0.1\t0.1\t0.1\t1\t2" % (
            namespace, number, namespace, number,
        )  # fmt: skip


def test_number_of_series_is_bounded_and_no_request_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_series, "MAX_KEYS", 30)
    monkeypatch.setattr(bounded_series, "MAX_KEYS_OF_NAMESPACE", 20)
    metrics = counted(*_lines(b"greedy", range(5000)))
    size = len(metrics.text())
    metrics.count(b"\n".join(_lines(b"greedy", range(5000, 10_000))) + b"\n")
    assert len(metrics.text()) < size * 1.1
    assert value(metrics, "route_requests_total") == 10_000
    assert value(metrics, "route_requests_total", route="other") == 9_980
    assert value(metrics, "backend_requests_total", backend="other") == 9_980
    # Another tenant still gets series of its own.
    metrics.count(b"\n".join(_lines(b"shop", range(11))) + b"\n")
    assert value(metrics, "route_requests_total", route="shop/web/9") == 1
    assert value(metrics, "route_requests_total", route="shop/web/10") == 0
    # Requests without a route as well.
    metrics.count(b"\t\t\t404\tGET|0.1\t-\t-\t1\t2\n")
    assert value(metrics, "route_requests_total", route="", status_class="4xx") == 1


class _Entry:
    def __init__(self, label: str) -> None:
        self.label = label
        self.used = 0.0


def test_idle_keys_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_series, "MAX_KEYS", 2)
    now = 1.0
    series = BoundedSeries(_Entry, 0, lambda: now)
    assert series.get(b"a/old").label == "a/old"
    now = 3000.0
    assert series.get(b"a/busy").label == "a/busy"
    assert series.get(b"a/new").label == "other"
    now = 4000.0
    assert series.get(b"a/new").label == "a/new"
    assert sorted(entry.label for entry in series) == ["", "a/busy", "a/new", "other"]


async def test_backlog_is_counted_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_log, "_READ_BYTES", 1000)
    path = tmp_path / request_log.FILE
    path.write_bytes((LINE + b"\n") * 3000 + LINE[:20])
    metrics = RouteMetrics(path, NGINX_LINES, {})
    # One pause between polls, not one for each of 200 reads.
    sleeps: list[float] = []
    sleep = asyncio.sleep

    async def record(seconds: float) -> None:
        sleeps.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", record)
    task = asyncio.create_task(metrics.run())
    while value(metrics, "route_requests_total") < 3000:
        await sleep(0)
    assert sum(map(bool, sleeps)) == 1
    with path.open("ab") as proxy:
        proxy.write(LINE[20:] + b"\n")
    while path.stat().st_size:
        await sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert value(metrics, "route_requests_total") == 3001
    assert not dropped(metrics)
