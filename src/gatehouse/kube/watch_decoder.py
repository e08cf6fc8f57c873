"""Decoder of watch streams: chunks of bytes in, complete events out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Literal, Protocol

import msgspec

from gatehouse.kube.errors import error_from_status

MALFORMED_EVENT = "malformed watch event"
"""Words of the error about an event that cannot be decoded."""


class Chunks(Protocol):
    """Body of a response in chunks."""

    def iter_any(self) -> AsyncIterator[bytes]:
        """Iterate over chunks as they arrive."""
        ...


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch. The object of a BOOKMARK has only a resource version."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: dict[str, Any]


class EventDecoder:
    """Splits a stream into lines of any length and decodes each as a WatchEvent."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._decoder = msgspec.json.Decoder(WatchEvent)

    def feed(self, chunk: bytes) -> tuple[WatchEvent, ...]:
        """Return the events that ``chunk`` completes. Raises msgspec.MsgspecError.

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
    """Yield events in batches as received. Raises the error of an ERROR event."""
    decoder = EventDecoder()
    async for chunk in content.iter_any():
        events = decoder.feed(chunk)
        batch = tuple(event for event in events if event.type != "ERROR")
        if batch:
            yield batch
        for event in events:
            if event.type == "ERROR":
                raise error_from_status(event.object)
