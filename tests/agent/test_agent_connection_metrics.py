"""Counting the lines of the connection log."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.agent import bounded_series, connection_metrics
from gatehouse.agent.connection_metrics import NGINX_CONNECTIONS, ConnectionMetrics
from gatehouse.compiler.ir.access_log import LocalReason

LINE = b"shop/db/0 Service/shop/db c\t\tTCP|1.5\t10\t20\n"


def _metrics(data: bytes) -> ConnectionMetrics:
    metrics = ConnectionMetrics(Path(), NGINX_CONNECTIONS, {})
    assert metrics.count(data) == len(data)
    return metrics


def test_number_of_series_is_bounded_and_no_connection_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_series, "MAX_KEYS_OF_NAMESPACE", 20)
    lines = (LINE.replace(b"/db/0", b"/db/%d" % n) for n in range(100))
    text = _metrics(b"".join(lines)).text()
    other = 'gatehouse_route_connections_total{protocol="TCP",reason="",route="other"} 80'
    assert other in text
    assert text.count("gatehouse_route_connections_total{") == 21


def test_malformed_lines_are_dropped_and_others_counted() -> None:
    broken = b"nonsense|\na b c\t\tTCP|1\t2\na b c\t\tTCP|1\t2\tx\n"
    metrics = _metrics(broken + LINE)
    assert "gatehouse_route_connections_total{" in metrics.text()
    assert metrics.text().count("gatehouse_route_connections_total{") == 1
    assert metrics.samples()[0].value == len(broken)


def test_reasons_are_those_of_the_access_log() -> None:
    known = set(connection_metrics._REASONS.values())
    assert known < {str(reason) for reason in LocalReason}
    text = _metrics(LINE.replace(b"\t\t", b"\tforged\t")).text()
    assert 'reason="other"' in text
