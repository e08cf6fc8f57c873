"""Tests get ports and addresses that no other process of tests gets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from fakes import loopback
from gatehouse.standalone.free_ports import is_free

OTHER = """
from fakes.loopback import free_port, loopback_network
print(*(free_port() for _ in range(300)), *(loopback_network() for _ in range(300)))
"""
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}


def test_processes_get_different_ports_and_networks() -> None:
    own = {str(loopback.free_port()) for _ in range(300)}
    own |= {loopback.loopback_network() for _ in range(300)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OTHER], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        for _ in range(2)
    ]
    others = [set(process.communicate()[0].split()) for process in processes]
    assert [len(names) for names in (own, *others)] == [600, 600, 600]
    assert own.isdisjoint(others[0] | others[1])
    assert all(is_free("127.0.0.1", int(name)) for name in own if name.isdigit())


def test_networks_of_data_planes_that_outlive_killed_tests_are_not_used() -> None:
    run = [sys.executable, "-c", "from fakes.loopback import loopback_network as n; print(n())"]

    def network() -> str:
        return subprocess.run(
            run, capture_output=True, text=True, check=True, env=ENVIRONMENT
        ).stdout.strip()

    with socket.create_server((f"{network()}.34", 0)) as data_plane:
        assert not data_plane.getsockname()[0].startswith(f"{network()}.")


def test_block_of_a_process_that_ended_is_used_again() -> None:
    command = [sys.executable, "-c", OTHER]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
        for _ in range(loopback._BLOCKS + 1)
    ]
    assert all(len(run.stdout.split()) == 600 for run in runs)
