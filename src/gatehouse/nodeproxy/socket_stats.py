"""What the kernel says of the sockets at the advertised addresses."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from gatehouse.nodeproxy.options import Address, Options

_ESTABLISHED, _LISTEN = "01", "0A"
"""States of TCP as the kernel writes them."""


def addresses_without_listener(options: Options) -> str:
    """Say at which addresses nobody listens; empty if somebody does at each."""
    found = in_state(_LISTEN, options)
    return ", ".join(str(each) for each, sockets in found.items() if not sockets)


def established(options: Options) -> int:
    """Count the connections to the advertised addresses."""
    return sum(in_state(_ESTABLISHED, options).values())


def in_state(state: str, options: Options) -> dict[Address, int]:
    """Count the sockets in a state at each of the advertised addresses."""
    return count(state, options.addresses, options.port, _tables())


def count(state: str, addresses: Iterable[Address], port: int, tables: str) -> dict[Address, int]:
    """Count sockets in tables as /proc/net/tcp has them."""
    ends = {f"{_hexadecimal(each)}:{port:04X}": each for each in addresses}
    found = dict.fromkeys(ends.values(), 0)
    for line in tables.splitlines():
        words = line.split()
        if len(words) > 3 and words[3] == state and words[1] in ends:
            found[ends[words[1]]] += 1
    return found


def _hexadecimal(address: Address) -> str:
    """Write an address as the kernel does: words of 32 bits in the machine's order."""
    packed = address.packed
    return "".join(
        f"{struct.unpack('=I', packed[at : at + 4])[0]:08X}" for at in range(0, len(packed), 4)
    )


def _tables() -> str:
    found = []
    for name in ("tcp", "tcp6"):
        try:
            found.append(Path(f"/proc/net/{name}").read_text(encoding="ascii"))
        except OSError:
            continue
    return "".join(found)
