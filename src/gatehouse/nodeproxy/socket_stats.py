"""Kernel statistics of the sockets on the advertised addresses."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from gatehouse.nodeproxy.options import IPAddress, NodeProxyOptions

_ESTABLISHED, _LISTEN = "01", "0A"
"""TCP states in the kernel's notation."""


def addresses_without_listener(options: NodeProxyOptions) -> str:
    """Return the addresses without a listener, as text. Empty if all have one."""
    counts = in_state(_LISTEN, options)
    return ", ".join(str(address) for address, sockets in counts.items() if not sockets)


def established_connections(options: NodeProxyOptions) -> int:
    """Return the number of connections to the advertised addresses."""
    return sum(in_state(_ESTABLISHED, options).values())


def in_state(state: str, options: NodeProxyOptions) -> dict[IPAddress, int]:
    """Return the number of sockets in a state on each advertised address."""
    return count(state, options.addresses, options.port, _tables())


def count(
    state: str, addresses: Iterable[IPAddress], port: int, tables: str
) -> dict[IPAddress, int]:
    """Return the number of sockets by address from tables in the format of /proc/net/tcp."""
    ends = {f"{_hexadecimal(address)}:{port:04X}": address for address in addresses}
    counts = dict.fromkeys(ends.values(), 0)
    for line in tables.splitlines():
        words = line.split()
        if len(words) > 3 and words[3] == state and words[1] in ends:
            counts[ends[words[1]]] += 1
    return counts


def _hexadecimal(address: IPAddress) -> str:
    """Return an address in the kernel's notation: 32-bit words in host byte order."""
    packed = address.packed
    return "".join(
        f"{struct.unpack('=I', packed[at : at + 4])[0]:08X}" for at in range(0, len(packed), 4)
    )


def _tables() -> str:
    tables = []
    for name in ("tcp", "tcp6"):
        try:
            tables.append(Path(f"/proc/net/{name}").read_text(encoding="ascii"))
        except OSError:
            continue
    return "".join(tables)
