"""Protocol buffers by hand, for messages made of bytes that are there already."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Encode a number that is not negative."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def head(field: int, length: int) -> bytes:
    """Give what stands before ``length`` bytes of field number ``field``."""
    return varint(field << 3 | 2) + varint(length)


def field(number: int, content: bytes) -> bytes:
    """Encode a field of type string, bytes or message."""
    return head(number, len(content)) + content
