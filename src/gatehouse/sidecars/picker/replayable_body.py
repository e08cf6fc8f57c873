"""Body of a message of which a copy is kept, for the case that a picker fails."""

from __future__ import annotations

from collections.abc import AsyncIterator

COPY_BYTES = 1 << 20
"""Maximum size of a copy."""


class ReplayableBody:
    """Body that is read once, and its first :data:`COPY_BYTES`."""

    def __init__(self, content: AsyncIterator[bytes]) -> None:
        """``content`` can be read on after a read that was cancelled."""
        self._content = content
        self._copy: list[bytes] = []
        self._size = 0
        self._is_copied = True

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the body, and keep a copy."""
        async for chunk in self._content:
            if self._is_copied:
                self._size += len(chunk)
                self._copy.append(chunk)
                if self._size > COPY_BYTES:
                    self.forget()
            yield chunk

    def forget(self) -> None:
        """Keep no copy: what was read is gone."""
        self._is_copied = False
        self._copy.clear()

    @property
    def is_complete(self) -> bool:
        """Return whether the whole body can be read again."""
        return self._is_copied

    async def replay(self) -> AsyncIterator[bytes]:
        """Yield the copy, and the rest that was not read. It must be complete."""
        for chunk in self._copy:
            yield chunk
        async for chunk in self._content:
            yield chunk
