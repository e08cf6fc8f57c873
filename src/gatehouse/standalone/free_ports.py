"""Ports for servers that may have any, but keep the one they got."""

from __future__ import annotations

import random
import socket
from pathlib import Path

CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 20000
"""Services are known by those under it."""
TRIES = 100


def free_port(host: str = "127.0.0.1") -> int:
    """Give a port at ``host`` that nobody has, and that no outgoing connection can get.

    One of the kernel's choice may be a connection's by the time its server starts, or starts
    again. Where connections may have every port it is the kernel's choice nevertheless.
    """
    ports = range(LOWEST, _first_of_connections())
    for port in random.sample(ports, k=min(TRIES, len(ports))):
        if is_free(host, port):
            return port
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def is_free(host: str, port: int) -> bool:
    """Say whether a server could listen there now."""
    with socket.socket(_family(host)) as probe:
        # As servers do: what an ended server's connections left behind is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _first_of_connections() -> int:
    try:
        return int(CONNECTIONS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
