"""TLS handshakes whose server name is any bytes."""

from __future__ import annotations

import struct


def client_hello(server_name: bytes | None) -> bytes:
    """Return a record with a ClientHello of TLS 1.2. None: without a server name."""
    extensions = b""
    if server_name is not None:
        entry = b"\0" + struct.pack("!H", len(server_name)) + server_name
        names = struct.pack("!H", len(entry)) + entry
        extensions += struct.pack("!HH", 0, len(names)) + names
    body = (
        b"\x03\x03" + bytes(32) + b"\0" + struct.pack("!H", 2) + b"\xc0\x2f" + b"\x01\0"
        + struct.pack("!H", len(extensions)) + extensions
    )  # fmt: skip
    handshake = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack("!H", len(handshake)) + handshake
