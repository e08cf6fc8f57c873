"""Free ports that no other process gets before their server listens."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec
import pytest

from gatehouse.standalone import free_ports
from gatehouse.standalone.process_records import ProcessRecord, start_time
from gatehouse.standalone.state_directory import State, split_address


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0"])
def test_free_port_is_outside_the_ephemeral_range(host: str) -> None:
    first = int(free_ports.CONNECTIONS.read_text().split()[0])
    for _ in range(20):
        port = free_ports.free_port(host)
        assert free_ports.LOWEST <= port < first
        assert free_ports.is_free(host, port)


def test_kernel_chooses_port_when_ephemeral_range_has_all_ports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    everything = tmp_path / "range"
    everything.write_text("1024\t65535\n")
    monkeypatch.setattr(free_ports, "CONNECTIONS", everything)
    assert free_ports.is_free("127.0.0.1", free_ports.free_port())


def test_port_with_a_listener_is_not_free() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        assert not free_ports.is_free("127.0.0.1", busy.getsockname()[1])


def test_installation_keeps_its_ports(tmp_path: Path) -> None:
    first = State(tmp_path).addresses("127.0.0.1:0", "[::1]:0")
    assert first.agent.startswith("[::1]:")
    assert State(tmp_path).addresses("127.0.0.1:0", "[::1]:0") == first
    assert State(tmp_path).addresses("127.0.0.1:1234", "[::1]:0").api == "127.0.0.1:1234"


def test_installation_leaves_a_port_that_another_program_uses(tmp_path: Path) -> None:
    first = State(tmp_path).addresses("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0")
    with socket.create_server(split_address(first.agent)):
        second = State(tmp_path).addresses("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0")
    assert (second.api, second.health) == (first.api, first.health)
    assert second.agent != first.agent
    assert State(tmp_path).addresses("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0") == second


def test_installation_keeps_a_port_that_its_own_process_uses(tmp_path: Path) -> None:
    """A supervisor that was killed leaves its processes behind, and the next one ends them."""
    state = State(tmp_path)
    state.acquire()
    first = state.addresses("127.0.0.1:0", "127.0.0.1:0")
    record = state.run / "controller.json"
    record.write_bytes(
        msgspec.json.encode(ProcessRecord(os.getpid(), start_time(os.getpid()) or 0))
    )
    with socket.create_server(split_address(first.agent)):
        assert state.addresses("127.0.0.1:0", "127.0.0.1:0") == first
        record.unlink()
        assert state.addresses("127.0.0.1:0", "127.0.0.1:0").agent != first.agent


def test_installation_keeps_the_port_of_metrics(tmp_path: Path) -> None:
    addresses = ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0")
    first = State(tmp_path).addresses(*addresses)
    assert first.health.startswith("127.0.0.1:")
    assert State(tmp_path).stored_addresses() == first
    assert State(tmp_path).addresses(*addresses) == first
    assert State(tmp_path).addresses(*addresses[:2], "").health == ""


def test_process_gets_each_port_once() -> None:
    """The server of a port may start long after the port is chosen."""
    ports = [free_ports.free_port() for _ in range(500)]
    assert len(set(ports)) == len(ports)
