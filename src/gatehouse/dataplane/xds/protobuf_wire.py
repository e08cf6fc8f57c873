"""Protobuf wire encoding by hand, for messages built around already serialised bytes."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Encode a non-negative number."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field_header(field: int, length: int) -> bytes:
    """Return the header of a length-delimited field ``field`` with ``length`` bytes."""
    return varint(field << 3 | 2) + varint(length)


def field(number: int, content: bytes) -> bytes:
    """Encode a field of type string, bytes or message."""
    return field_header(number, len(content)) + content
