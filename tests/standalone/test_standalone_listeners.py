"""Listen addresses of `gatehouse up`, which are checked before processes start."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.loopback import free_port
from fakes.patience import SECONDS
from gatehouse.standalone.listeners import check_listeners
from gatehouse.standalone.state_directory import State, StateError

OPTIONS = ("--api-address", "--agent-address", "--health-bind-address", "--machine-address")


@pytest.fixture
def busy() -> Iterator[str]:
    """An address on which another process listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def up(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `gatehouse up` with free ports and these options."""
    free = ("--api-address", "127.0.0.1:0", "--agent-address", "127.0.0.1:0")
    command = (sys.executable, "-m", "gatehouse", "up", "--state-dir", str(directory))
    return subprocess.run(
        (*command, *free, *options), capture_output=True, text=True, check=False, timeout=SECONDS
    )


@pytest.mark.process
@pytest.mark.parametrize("option", OPTIONS)
def test_up_names_the_option_whose_address_is_in_use(
    option: str, busy: str, tmp_path: Path
) -> None:
    done = up(tmp_path / "s", option, busy)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"gatehouse: {option} {busy}: address already in use; select another address or port"
    ]


@pytest.mark.process
def test_up_names_the_option_of_a_malformed_address(tmp_path: Path) -> None:
    done = up(tmp_path / "s", "--machine-address", "everywhere")
    assert done.returncode == 1
    assert (
        done.stderr == "gatehouse: --machine-address: 'everywhere' is not of the form host:port\n"
    )


@pytest.mark.process
@pytest.mark.parametrize("value", ["foo://x", "file:///x", "sqlite:x", "etcd://", "etcd:/x"])
def test_up_rejects_unknown_storages(value: str, tmp_path: Path) -> None:
    done = up(tmp_path / "s", "--storage", value)
    assert done.returncode == 2
    assert "Invalid value for '--storage'" in done.stderr
    assert value in done.stderr
    assert not (tmp_path / "s").exists()


def test_free_addresses_stay_free(busy: str) -> None:
    port = free_port()
    addresses = {"--a": f"127.0.0.1:{port}", "--b": f"localhost:{free_port()}", "--c": ""}
    for _ in range(2):
        check_listeners(addresses)
    with pytest.raises(StateError, match=f"--d {busy}: address already in use"):
        check_listeners({**addresses, "--d": busy})
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen()


def test_two_options_cannot_have_one_address() -> None:
    port = free_port()
    with pytest.raises(StateError, match=f"--b 127.0.0.1:{port}: same address as --a"):
        check_listeners({"--a": f"127.0.0.1:{port}", "--b": f"127.0.0.1:{port}"})
    with pytest.raises(StateError, match=f"--b 127.0.0.1:{port}: address already in use"):
        check_listeners({"--a": f"0.0.0.0:{port}", "--b": f"127.0.0.1:{port}"})


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("192.0.2.1:8000", "cannot assign requested address"),
        ("name.invalid:8000", "name or service not known|name resolution"),
        ("127.0.0.1:x", "not of the form host:port"),
    ],
)
def test_addresses_of_other_machines_are_rejected(address: str, reason: str) -> None:
    with pytest.raises(StateError, match=f"--agent-address.*({reason})"):
        check_listeners({"--agent-address": address})


def test_port_0_of_another_machine_is_rejected(tmp_path: Path) -> None:
    state = State(tmp_path)
    with pytest.raises(StateError, match=r"--agent-address 192\.0\.2\.1:0: cannot assign"):
        state.addresses("127.0.0.1:0", "192.0.2.1:0")
