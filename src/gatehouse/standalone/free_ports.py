"""Free TCP ports for servers that keep the port they got."""

from __future__ import annotations

import random
import socket
from pathlib import Path

CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 20000
"""Lowest port to use. Well-known services use lower ones."""
TRIES = 100

_returned: set[tuple[str, int]] = set()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a free port of ``host`` outside the range of outgoing connections.

    A port chosen by the kernel may be used by a connection before its server starts or restarts.
    If connections may use every port, the kernel chooses nevertheless. A process gets each port
    once: the server that it was chosen for may not have started yet.
    """
    ports = range(LOWEST, _lowest_ephemeral_port())
    for port in random.sample(ports, k=min(TRIES, len(ports))):
        if (host, port) not in _returned and is_free(host, port):
            _returned.add((host, port))
            return port
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def is_free(host: str, port: int) -> bool:
    """Return whether a server can listen on ``host`` and ``port`` now."""
    with socket.socket(_family(host)) as probe:
        # As servers do: connections in TIME_WAIT do not prevent binding.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _lowest_ephemeral_port() -> int:
    try:
        return int(CONNECTIONS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
