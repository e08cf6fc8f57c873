"""Number of client connections of a proxy, from the kernel's tables: the same for all proxies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from gatehouse.runtime import procfs
from gatehouse.runtime.prometheus import Sample

_TABLES = ("tcp", "tcp6")

_LISTENING = re.compile(rb"^ *\d+: (\w+):(\w+) \S+ 0A(?: +\S+){5} +(\d+)", re.MULTILINE)
_ESTABLISHED = re.compile(rb"^ *\d+: (\w+):(\w+) \S+ 01 ", re.MULTILINE)
"""Local address and port, and the inode, of sockets in a table."""

_HELP = "Established TCP connections of clients, including idle ones."


def connection_samples(pid: int | None) -> list[Sample]:
    """Return the metrics of the process that has the listening sockets; none if it is gone.

    Reads tables whose size grows with the connections of the machine: call it in a thread.
    """
    try:
        inodes = procfs.sockets(pid) if pid is not None else {}
        tables = [Path("/proc/net", name).read_bytes() for name in _TABLES]
    except OSError:
        return []
    return [sample(count_connections(tables, inodes))]


def sample(number: int) -> Sample:
    """Return the metric for a number of connections."""
    return Sample("gatehouse_client_connections", _HELP, number)


def count_connections(tables: Iterable[bytes], inodes: Collection[int]) -> int:
    """Return the number of connections to the listening sockets with these inodes."""
    total = 0
    for table in tables:
        listening = {
            (address, port)
            for address, port, inode in _LISTENING.findall(table)
            if int(inode) in inodes
        }
        # A socket on all addresses accepts the connections to every address.
        ports = {port for address, port in listening if not address.strip(b"0")}
        for end, number in Counter(_ESTABLISHED.findall(table)).items():
            if end in listening or end[1] in ports:
                total += number
    return total
