"""The benchmarks still run: a small round of each, with no wrong answer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.loopback import loopback_network

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
    return "--pool", f"{loopback_network()}.0/24"


def rows_of(output: str) -> list[dict[str, Any]]:
    """Return the rows that a benchmark printed as JSON."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


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
    output = measured(
        "routes", "--routes", "20", "--changes", "3", "--rate", "5", "--seconds", "2", *pool()
    )
    _, _, attach, change, _, detach = output.splitlines()
    assert "httproutes: 20," in attach
    assert re.search(r"httproutes: [1-3],", change)
    assert "httproutes" not in detach


def test_agent_benchmark_reports_less_than_60_mb() -> None:
    output = measured("agent_start", "--starts", "2", "--applies", "10", "--rest", "1")
    document = json.loads(output[output.index("{\n") :])
    assert 20 < document["rss_mb_at_rest"] < 60
    assert 20 < document["rss_mb_after_applies"] < 60
    assert document["start_s_p50"] > 0


def test_agent_benchmark_counts_no_transfers_on_reconnect() -> None:
    small = ("--agents", "20", "--instances", "8", "--gateways", "3", "--routes", "3")
    output = measured("agents", *small, "--changes", "1", "--processes", "2")
    _, _, connect, broadcast, reconnect = output.splitlines()
    assert "bundles: 20," in connect
    assert "errors: {}" in connect
    assert "bundles: 8, files: 8 " in broadcast
    assert "bundles: 0, files: 0," in reconnect


def test_large_configuration_benchmark_counts_bytes_of_the_change_only() -> None:
    output = measured("large_bundle", "--routes", "500", "--seconds", "3", *pool(), seconds=150)
    first = re.search(r"fetched at first \| files: (\d+), bytes: (\d+)", output)
    change = re.search(r"fetched of it \| bytes: (\d+)", output)
    assert first
    assert change
    assert int(first[1]) > 500
    assert int(change[1]) < int(first[2]) / 100


def test_route_scale_benchmark_sees_every_change_of_each_class() -> None:
    output = measured(
        "route_scale", "--namespaces", "2", "--routes", "10", "--seconds", "3", *pool(), seconds=200
    )
    assert "| changes; never seen | 30; 0 | 30; 0 |" in output
    match = re.search(r"bytes to the data plane per change \| ([\d,]+) \| ([\d,]+) \|", output)
    assert match
    assert all(int(group.replace(",", "")) > 100 for group in match.groups())


def test_discovery_benchmark_measures_changes_served_by_envoy() -> None:
    output = measured("discovery", "--clusters", "8", "--samples", "2")
    for what in ("endpoints", "virtual host", "cluster, virtual host"):
        assert re.search(rf"^  {what} +served +[\d.]+ ms", output, re.M)


def test_review_benchmark_counts_reviews_with_and_without_cache() -> None:
    output = measured("reviews", "--tokens", "100", "--width", "8")
    assert re.search(r"^tokens, asked about .* reviews +100 ", output, re.M)
    assert re.search(r"^tokens, from memory .* reviews +0 ", output, re.M)


def test_hosted_kube_apiserver_benchmark_runs() -> None:
    output = measured("hosted", "--names", "5", "--rounds", "1", "--only", "Envoy by Gatehouse")
    row = output.splitlines()[-1]
    assert row.startswith("| Envoy by Gatehouse | 5 |")
    # One name and one destination: a cluster and its endpoints for each, and no listener.
    match = re.search(r"(\d+) bytes; the pass", row)
    assert match is not None
    assert 500 < int(match[1]) < 2000


def test_provisioning_benchmark_counts_requests_independent_of_gateway_count() -> None:
    rows = rows_of(measured("provisioning", "--gateways", "2,12", "--samples", "2"))
    listener = [row["requests"] for row in rows if row["what"] == "listener"]
    # Our own patch; the Service, and the Gateway's status.
    assert [requests["PATCH"] for requests in listener] == [1, 1]
    assert all(requests["PUT"] <= 3 for requests in listener)
    assert all("LIST" not in requests for requests in listener)


@pytest.mark.long
def test_gateways_benchmark_counts_cost_of_one_change() -> None:
    output = measured("gateways", "--gateways", "2,4")
    rows = [line for line in output.splitlines() if line.startswith("| a")]
    assert len(rows) == 12
    assert "KiB for each Gateway more" in output


@pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("proxy", ["nginx", "envoy"])
def test_access_log_benchmark_counts_requests_and_connections(proxy: str) -> None:
    output = measured(
        "access_log", "--proxy", proxy, "--seconds", "1", "--rounds", "1", seconds=200
    )
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in output.splitlines()[2:]]
    logs = ("neither", "metrics", "access log", "metrics and access log")
    titles = [f"{proxy}, {route}, {log}" for route in ("HTTP", "TCP") for log in logs]
    assert [row[0] for row in rows] == titles
    assert all(float(row[1].replace(",", "")) > 0 for row in rows)
    # The file is not emptied while the proxy writes.
    assert all(float(row[-1].removesuffix("%")) < 0.1 for row in rows), output
    agents = {row[0].rpartition(", ")[2]: float(row[5].removesuffix(" µs")) for row in rows}
    assert agents["neither"] == 0 < agents["metrics and access log"]


@pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk")
@pytest.mark.parametrize(("part", "titles"), [
    ("users", ["for everybody", "for a user with a session"]),
    ("names", [f"{size} answers over TLS, by {who}"
               for size in ("small", "large") for who in ("NGINX", "a connector")]),
])  # fmt: skip
def test_throughput_benchmark_measures_what_sidecars_cost(part: str, titles: list[str]) -> None:
    output = measured("throughput", "--part", part, "--seconds", "1", "--rounds", "1")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in output.splitlines()[2:]]
    assert [row[0] for row in rows] == titles
    assert all(float(row[1].replace(",", "")) > 0 for row in rows)
