"""Check that the listen addresses of an installation are free before its processes start."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

from gatehouse.standalone.state_directory import StateError, split_address


def check_listeners(addresses: Mapping[str, str]) -> None:
    """Raise StateError for the first address on which no process can listen.

    `addresses` has ``host:port`` by option. Empty addresses are not served. All sockets are open
    together, so that no two options can have one address.
    """
    with contextlib.ExitStack() as opened:
        options: dict[tuple[object, ...], str] = {}
        for option, address in addresses.items():
            for family, place in _resolved(option, address) if address else ():
                if place in options:
                    raise StateError(f"{option} {address}: same address as {options[place]}")
                options[place] = option
                probe = opened.enter_context(socket.socket(family))
                _listen(probe, place, f"{option} {address}")


def _resolved(option: str, address: str) -> list[tuple[socket.AddressFamily, tuple[object, ...]]]:
    """Return the socket addresses of a listen address. Raises StateError."""
    try:
        host, port = split_address(address)
    except StateError as error:
        raise StateError(f"{option}: {error}") from error
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise StateError(f"{option} {address}: {reason}") from error
    return list(dict.fromkeys((info[0], info[4]) for info in infos))


def _listen(probe: socket.socket, place: tuple[object, ...], name: str) -> None:
    """Listen for a moment. Raises StateError."""
    # As servers do: connections in TIME_WAIT do not prevent binding.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if probe.family == socket.AF_INET6:
        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        probe.bind(place)
        probe.listen()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StateError(f"{name}: {reason}; select another address or port") from error
