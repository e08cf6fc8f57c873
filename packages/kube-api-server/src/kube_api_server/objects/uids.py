"""UIDs: random UUIDs, with one system call for many of them."""

from __future__ import annotations

import os

_STOCK = 256
_random = bytearray()


def new() -> str:
    """Return a UUID, version 4 (RFC 9562)."""
    if not _random:
        _random.extend(os.urandom(16 * _STOCK))
    data = bytearray(_random[-16:])
    del _random[-16:]
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
