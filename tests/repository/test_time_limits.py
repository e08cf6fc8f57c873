"""`GATEHOUSE_TIME_FACTOR` scales the limits of the product that a slow machine exceeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import source_trees
from gatehouse import TIME_FACTOR_VARIABLE
from kube_base.runtime.time_limits import parse_time_factor

LIMITS = {
    "agent.envoy.admin": ["ADMIN_TIMEOUT_SECONDS", "FIND_TIMEOUT_SECONDS"],
    "agent.liveness": ["LivenessPolicy().kill_seconds"],
    "agent.nginx.confirmation": ["BASE_SECONDS", "_MAX_SECONDS"],
    "agent.nginx.dns_upstreams": ["UPDATE_TIMEOUT_SECONDS", "START_TIMEOUT_SECONDS"],
    "agent.nginx.mpi_client": ["UNARY_SECONDS", "DOWNLOAD_SECONDS"],
    "agent.nginx.plus.client": ["API_TIMEOUT_SECONDS"],
    "agent.nginx.staging": ["TEST_SECONDS"],
    "agent.nginx.supervisor": ["STOP_ACCEPTING_SECONDS"],
    "agent.options": ["PROBE_BINARY_SECONDS"],
    "agent.sidecars": ["CONTROL_TIMEOUT_SECONDS", "STOP_TIMEOUT_SECONDS"],
    "cli.connection_sender": ["TIMEOUT_SECONDS"],
    "cli.logged_request": ["_WAIT_SECONDS"],
    "compiler.backends.envoy.shared_limits": ["RATE_LIMIT_TIMEOUT_SECONDS"],
    "controller.loop": ["INITIAL_FETCH_TIMEOUT_SECONDS"],
    "dataplane.xds.ads_session": ["SUBSCRIBE_GRACE_SECONDS", "CLUSTER_WARMING_SECONDS"],
    "inspection.data_plane_metrics": ["_TIMEOUT_SECONDS"],
    "kube.connection": ["REQUEST_TIMEOUT_SECONDS", "API_CONNECT_TIMEOUT_SECONDS"],
    "kube.leader_election": ["LeaseTiming().duration", "LeaseTiming().renew_deadline"],
    "kube_api_server.controllers.leader_election": ["DURATION_SECONDS"],
    "kube_api_server.storage.etcd.client": ["RPC_TIMEOUT_SECONDS"],
    "kube_api_server.storage.etcd.store": ["VISIBLE_SECONDS"],
    "nodeproxy.commands": ["COMMAND_TIMEOUT_SECONDS"],
    "ratelimit.main": ["REDIS_TIMEOUT_SECONDS", "RateLimitOptions(redis='').redis_timeout"],
    "runtime.supervised_process": ["TERMINATION_SECONDS"],
    "runtime.unix_http": ["PAGE_TIMEOUT_SECONDS"],
    "sidecars.reviewer.concurrency": ["WAIT_SECONDS"],
    "sidecars.reviewer.review_client": ["ATTEMPT_SECONDS"],
    "standalone.node.probes": ["ProbeTiming().timeout_seconds"],
    "standalone.supervisor": ["LIVENESS.kill_seconds", "LEFTOVER_GRACE_SECONDS"],
    "standalone.up": ["READY_TIMEOUT_SECONDS"],
    "transports.server": ["APPLY_SECONDS"],
}
"""Expressions of the limits, by module: of `gatehouse`, or with the name of another package."""

PROGRAM = """
import importlib, json, sys
limits = json.load(sys.stdin)
full = {n: n if n.startswith("kube_api_server.") else f"gatehouse.{n}" for n in limits}
modules = {name: vars(importlib.import_module(full[name])) for name in limits}
print(json.dumps([eval(limit, modules[name]) for name in limits for limit in limits[name]]))
"""


def run(factor: str, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python with a factor."""
    environ = {**os.environ, TIME_FACTOR_VARIABLE: factor, "PYTHONPATH": source_trees.SEARCH_PATH}
    return subprocess.run(
        [sys.executable, *command],
        input=text, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip


def limits_with(factor: str) -> list[float]:
    """Return the values of the limits in a process with a factor."""
    done = run(factor, "-c", PROGRAM, text=json.dumps(LIMITS))
    assert done.returncode == 0, done.stderr
    values: list[float] = json.loads(done.stdout)
    return values


def test_limits_of_the_product_are_scaled() -> None:
    names = [f"{module}.{name}" for module, limits in LIMITS.items() for name in limits]
    plain, longer = limits_with(""), limits_with("3")
    wrong = [
        (name, one, three)
        for name, one, three in zip(names, plain, longer, strict=True)
        if three != pytest.approx(3 * one) or one <= 0
    ]
    assert wrong == []


def test_every_module_with_scaled_limits_is_tested() -> None:
    modules = {
        ".".join(Path(source_trees.short_name(path)).with_suffix("").parts)
        for path in source_trees.modules()
        if "import scaled\n" in path.read_text(encoding="utf-8")
    }
    assert modules == LIMITS.keys()


def test_factor_is_a_positive_number() -> None:
    assert [parse_time_factor(text) for text in ("1", "0.5", " 4 ")] == [1, 0.5, 4]


@pytest.mark.parametrize("text", ["fast", "0", "-1", "inf", "nan", "1e999"])
def test_other_factor_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be a positive number"):
        parse_time_factor(text)


def test_command_reports_an_invalid_factor() -> None:
    done = run("fast", "-m", "gatehouse", "up")
    assert (done.returncode, done.stderr) == (
        1,
        "gatehouse: GATEHOUSE_TIME_FACTOR: must be a positive number, not 'fast'\n",
    )
