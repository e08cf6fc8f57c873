"""Watch streams: bytes as they arrive in, whole events out. Pure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch. A BOOKMARK's object has nothing but its resource version."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: dict[str, Any]


class EventDecoder:
    """Cuts a stream into lines of any length and decodes each as a WatchEvent."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._decoder = msgspec.json.Decoder(WatchEvent)

    def feed(self, chunk: bytes) -> tuple[WatchEvent, ...]:
        """Give the events that ``chunk`` completes; raises msgspec.MsgspecError on nonsense.

        The parts of an unfinished line are joined once, at its end: a 1 MiB Secret arriving in
        pieces must not be copied again for every piece.
        """
        head, newline, rest = chunk.partition(b"\n")
        self._parts.append(head)
        if not newline:
            return ()
        first = b"".join(self._parts)
        *whole, tail = rest.split(b"\n")
        self._parts = [tail]
        return tuple(self._decoder.decode(line) for line in (first, *whole) if line.strip())
