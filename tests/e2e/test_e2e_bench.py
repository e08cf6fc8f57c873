"""The benchmarks still run: a small round of each, with no wrong answer."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.process, pytest.mark.long]


def measured(name: str, *arguments: str, seconds: float = 120) -> str:
    """Run a benchmark to its end. Return its output."""
    done = subprocess.run(
        (sys.executable, str(ROOT / "bench" / f"{name}.py"), *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pool() -> tuple[str, str]:
    """Return options for an address pool that no other benchmark uses at the same time."""
    return "--pool", f"127.{random.randint(20, 80)}.{random.randint(0, 255)}.0/24"


def rows_of(said: str) -> list[dict[str, Any]]:
    """Return the rows that a benchmark printed as JSON."""
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def test_route_propagation_benchmark_reports_no_wrong_response(tmp_path: Path) -> None:
    measured(
        "route_propagation", "--routes", "5", "--samples", "3", *pool(), "--out", str(tmp_path)
    )
    (row,) = json.loads((tmp_path / "route_propagation.json").read_text())
    assert (row["samples"], row["wrong_answers"]) == (3, 0)
    assert all(row["rss_mb"].values())
    assert (tmp_path / "route_propagation.png").stat().st_size > 1000


def test_load_balancer_benchmark_counts_one_request_for_each_server() -> None:
    small = ("--hosts", "3", "--upstreams", "5", "--nodes", "4", "--samples", "1", "--churn", "2")
    rows = rows_of(measured("load_balancers", *small, *pool()))
    calls = {row["what"]: row["calls"] for row in rows}
    assert calls["join"]["POST"] == 15
    assert calls["leave"]["DELETE"] == 15
    assert [row["failed"] for row in rows] == [0, 0, 0, 0]


def test_machine_benchmark_counts_only_changed_endpoint_files() -> None:
    small = ("--machines", "3", "--upstreams", "5", "--nodes", "4", "--samples", "1")
    rows = rows_of(measured("load_balancer_machines", *small, *pool()))
    assert [row["what"] for row in rows] == ["first", "join", "leave"]
    # The endpoints of each upstream, once for each machine.
    assert [row["files"] for row in rows[1:]] == [15, 15]
    # Machines may be there before the control plane listens; later none loses it.
    assert rows[0]["errors"] == rows[1]["errors"] == rows[2]["errors"]


def test_route_benchmark_counts_one_status_write_for_each_route() -> None:
    said = measured(
        "routes", "--routes", "20", "--changes", "3", "--rate", "5", "--seconds", "2", *pool()
    )
    _, _, attach, change, _, detach = said.splitlines()
    assert "httproutes: 20," in attach
    assert re.search(r"httproutes: [1-3],", change)
    assert "httproutes" not in detach


def test_agent_benchmark_reports_less_than_60_mb() -> None:
    said = measured("agent_start", "--starts", "2", "--applies", "10", "--rest", "1")
    document = json.loads(said[said.index("{\n") :])
    assert 20 < document["rss_mb_at_rest"] < 60
    assert 20 < document["rss_mb_after_applies"] < 60
    assert document["start_s_p50"] > 0


def test_agent_benchmark_counts_no_transfers_on_reconnect() -> None:
    small = ("--agents", "20", "--instances", "8", "--gateways", "3", "--routes", "3")
    said = measured("agents", *small, "--changes", "1", "--processes", "2")
    _, _, connect, broadcast, reconnect = said.splitlines()
    assert "bundles: 20," in connect
    assert "errors: {}" in connect
    assert "bundles: 8, files: 8 " in broadcast
    assert "bundles: 0, files: 0," in reconnect


def test_large_configuration_benchmark_counts_bytes_of_the_change_only() -> None:
    said = measured("large_bundle", "--routes", "500", "--seconds", "3", *pool(), seconds=150)
    first = re.search(r"fetched at first \| files: (\d+), bytes: (\d+)", said)
    change = re.search(r"fetched of it \| bytes: (\d+)", said)
    assert first
    assert change
    assert int(first[1]) > 500
    assert int(change[1]) < int(first[2]) / 100


def test_route_scale_benchmark_sees_every_change_of_each_class() -> None:
    said = measured(
        "route_scale", "--namespaces", "2", "--routes", "10", "--seconds", "3", *pool(), seconds=200
    )
    assert "| changes; never seen | 30; 0 | 30; 0 |" in said
    match = re.search(r"bytes to the data plane per change \| ([\d,]+) \| ([\d,]+) \|", said)
    assert match
    assert all(int(each.replace(",", "")) > 100 for each in match.groups())


def test_discovery_benchmark_measures_changes_served_by_envoy() -> None:
    said = measured("discovery", "--clusters", "8", "--samples", "2")
    for what in ("endpoints", "virtual host", "cluster, virtual host"):
        assert re.search(rf"^  {what} +served +[\d.]+ ms", said, re.M)


def test_review_benchmark_counts_reviews_with_and_without_cache() -> None:
    said = measured("reviews", "--tokens", "100", "--width", "8")
    assert re.search(r"^tokens, asked about .* reviews +100 ", said, re.M)
    assert re.search(r"^tokens, from memory .* reviews +0 ", said, re.M)


def test_hosted_kube_apiserver_benchmark_runs() -> None:
    said = measured("hosted", "--names", "5", "--rounds", "1", "--only", "Envoy by Gatehouse")
    row = said.splitlines()[-1]
    assert row.startswith("| Envoy by Gatehouse | 5 |")
    # One name and one destination: a cluster and its endpoints for each, and no listener.
    match = re.search(r"(\d+) bytes; the pass", row)
    assert match is not None
    assert 500 < int(match[1]) < 2000


def test_provisioning_benchmark_counts_requests_independent_of_gateway_count() -> None:
    rows = rows_of(measured("provisioning", "--gateways", "2,12", "--samples", "2"))
    listener = [row["requests"] for row in rows if row["what"] == "listener"]
    # Our own patch; the Service, and the Gateway's status.
    assert [each["PATCH"] for each in listener] == [1, 1]
    assert all(each["PUT"] <= 3 for each in listener)
    assert all("LIST" not in each for each in listener)


@pytest.mark.long
def test_gateways_benchmark_counts_cost_of_one_change() -> None:
    said = measured("gateways", "--gateways", "2,4")
    rows = [line for line in said.splitlines() if line.startswith("| a")]
    assert len(rows) == 12
    assert "KiB for each Gateway more" in said
