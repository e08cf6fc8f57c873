"""Watch streams: bytes as they arrive in, whole events out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Literal, Protocol

import msgspec

from gatehouse.kube.errors import error_from_status


class Chunks(Protocol):
    """Bytes of an answer as they arrive."""

    def iter_any(self) -> AsyncIterator[bytes]:
        """Give what has arrived."""
        ...


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


async def decoded_batches(
    content: Chunks,
) -> AsyncGenerator[tuple[WatchEvent, ...], None]:
    """Give together the events that arrived together. Raises what an ERROR event carries."""
    decoder = EventDecoder()
    async for chunk in content.iter_any():
        events = decoder.feed(chunk)
        good = tuple(event for event in events if event.type != "ERROR")
        if good:
            yield good
        for event in events:
            if event.type == "ERROR":
                raise error_from_status(event.object)
