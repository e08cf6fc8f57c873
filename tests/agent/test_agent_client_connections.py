"""Number of client connections, from the kernel's tables."""

from __future__ import annotations

import os
import socket

import pytest

from gatehouse.agent import client_connections

HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"  # noqa: E501


def row(number: int, local: str, state: str, inode: int) -> bytes:
    """Return a row of a table."""
    text = (
        f"{number:4d}: {local} 0100007F:D431 {state} 00000000:00000000 02:000004E5 00000000 "
        f"65534        0 {inode} 2 0000000000000000 20 4 30 10 -1\n"
    )
    return text.encode()


FOUR = [("00000000:1F90", "0A", 7), ("0100007F:1F91", "0A", 8), ("00000000:1F92", "0A", 99)]
SIX = [("0" * 32 + ":1F93", "0A", 9)]


@pytest.mark.parametrize(
    ("local", "six", "counts"),
    [
        ("0100007F:1F90", False, True),
        ("0500A8C0:1F90", False, True),
        ("0100007F:1F91", False, True),
        ("0200007F:1F91", False, False),
        ("0100007F:1F92", False, False),
        ("0100007F:1F93", False, False),
        ("0" * 16 + "FFFF0000" + "0100007F:1F93", True, True),
        ("0" * 16 + "FFFF0000" + "0100007F:1F90", True, False),
    ],
)
def test_connections_to_listening_sockets_are_counted(local: str, six: bool, counts: bool) -> None:
    rows = ([*FOUR], [*SIX])
    rows[six].extend([(local, "01", 20), (local, "01", 0), (local, "06", 0)])
    tables = [
        HEAD + b"".join(row(number, *values) for number, values in enumerate(table))
        for table in rows
    ]
    assert client_connections.count_connections(tables, {7, 8, 9}) == 2 * counts


def test_connections_of_this_process_are_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = client_connections.connection_samples(os.getpid())[0].value
        with socket.create_connection(server.getsockname()):
            assert client_connections.connection_samples(os.getpid())[0].value == before + 1


def test_dead_process_has_no_connections() -> None:
    assert client_connections.connection_samples(None)[0].value == 0
    assert client_connections.connection_samples(2**22 + 1) == []
