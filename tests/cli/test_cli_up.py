"""Address options of `gatehouse up`."""

from __future__ import annotations

import click
import pytest

from fakes.machines import CUT, POSSIBLE, Machine
from gatehouse.cli import up

COMMAND = click.Command("up")


def _pool(value: str) -> str:
    (option,) = (param for param in up.up.params if param.name == "address_pool")
    return str(option.process_value(click.Context(COMMAND), value))


def test_loopback_networks_are_accepted() -> None:
    assert _pool("127.9.0.0/24") == "127.9.0.0/24"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("127.0.0.0/31", "must have at least 4 addresses"),
        ("127.0.0.1/24", "has host bits set"),
        ("203.0.113.0/24", "not local to this machine"),
        ("fd00::/64", "Only decimal digits|Expected 4 octets"),
    ],
)
def test_invalid_networks_are_rejected(value: str, reason: str) -> None:
    with pytest.raises(click.BadParameter, match=reason):
        _pool(value)


@pytest.mark.skipif(not POSSIBLE, reason=CUT)
def test_networks_of_the_local_machine_are_accepted() -> None:
    machine = Machine("pool")
    try:
        machine.run("ip", "route", "add", "local", "203.0.113.0/24", "dev", "lo")
        with machine.entered():
            assert _pool("203.0.113.0/24") == "203.0.113.0/24"
    finally:
        machine.close()
