"""Loopback networks and ports that no other process of tests on this machine gets.

A process holds the lock of a block of both until it ends, so that neither two workers of a run nor
two runs can get the same. Data planes outlive tests that are killed: a block in whose networks
something listens is not used either.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gatehouse.standalone.free_ports import LOWEST, is_free

_BLOCKS = 20
"""Number of processes at a time."""
_BLOCK_PORTS = 500
_BLOCK_NETWORKS = 11 << 8
_FIRST_PORT = LOWEST - _BLOCKS * _BLOCK_PORTS
"""Installations choose their ports from :data:`~gatehouse.standalone.free_ports.LOWEST` on."""
_FIRST_NETWORK = 20 << 8
"""The second and third number of 127.20.0."""
_CREATE = os.O_CREAT | os.O_WRONLY
_LISTEN = "0A"
"""State of a listening socket in ``/proc/net/tcp``."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a free port. A process gets the same one again only after all others of its block."""
    return next(port for port in itertools.islice(_ports(), _BLOCK_PORTS) if is_free(host, port))


def loopback_network() -> str:
    """Return the first three numbers of loopback addresses of this process alone."""
    return "127.{}.{}".format(*divmod(next(_networks()), 256))


@functools.cache
def _ports() -> Iterator[int]:
    first = _FIRST_PORT + _block() * _BLOCK_PORTS
    return itertools.cycle(range(first, first + _BLOCK_PORTS))


@functools.cache
def _networks() -> Iterator[int]:
    first = _FIRST_NETWORK + _block() * _BLOCK_NETWORKS
    return itertools.cycle(range(first, first + _BLOCK_NETWORKS))


@functools.cache
def _block() -> int:
    """Return the number of a block of this process's own. Its lock is held until the end."""
    served = _served_blocks()
    for number in range(_BLOCKS):
        if number in served:
            continue
        with contextlib.suppress(OSError):
            lock = os.open(f"{tempfile.gettempdir()}/gatehouse-tests-{number}.lock", _CREATE)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
            else:
                return number
    raise RuntimeError(f"{_BLOCKS} processes of tests run already")


def _served_blocks() -> set[int]:
    """Return the numbers of the blocks in whose networks something listens."""
    sockets = map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
    addresses = [fields[1].partition(":")[0] for fields in sockets if fields[3] == _LISTEN]
    numbers = [int(address, 16).to_bytes(4, sys.byteorder) for address in addresses]
    networks = [(second << 8) + third for first, second, third, _ in numbers if first == 127]
    return {(network - _FIRST_NETWORK) // _BLOCK_NETWORKS for network in networks}
