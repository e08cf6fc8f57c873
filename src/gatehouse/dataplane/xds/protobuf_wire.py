"""Protobuf wire encoding by hand, for messages built around already serialised bytes."""

from __future__ import annotations

from collections.abc import Iterator


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


def field_lengths(message: bytes) -> Iterator[tuple[int, int]]:
    """Yield the number and the length in bytes of each field at the top level of a message.

    Nothing is decoded or copied, so that a message can be refused before it takes memory. Raises
    ValueError if the message is not valid.
    """
    position = 0
    try:
        while position < len(message):
            tag, start = _read_varint(message, position)
            match tag & 7:
                case 0:
                    end = _read_varint(message, start)[1]
                case 2:
                    length, start = _read_varint(message, start)
                    end = start + length
                case 1 | 5 as wire_type:
                    end = start + (8 if wire_type == 1 else 4)
                case _:
                    raise ValueError("unknown wire type")
            yield tag >> 3, end - position
            position = end
    except IndexError:
        raise ValueError("truncated message") from None


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """Return a number and the position behind it."""
    number = shift = 0
    while (byte := message[position]) > 0x7F:
        number |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if shift > 63:
            raise ValueError("number too long")
    return number | byte << shift, position + 1
