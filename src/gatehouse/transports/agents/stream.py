"""The way to one instance, which may be slower than what is to be said to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from gatehouse.dataplane.file_set import FileSet
from gatehouse.transports.agents import session
from gatehouse.transports.agents.publication import Published
from gatehouse.transports.agents.token_auth import Identity

MESSAGES_MAX = 16
"""Messages of a dialect's own that may wait on a stream; whose client asks for more is cut off."""


class Apply(msgspec.Struct, frozen=True):
    """A request to apply a bundle, and what its instance said of itself."""

    published: Published
    correlation: str
    about: session.Register
    upstream: str = ""
    """Given: only the servers of this upstream are asked for."""
    unmanaged: frozenset[str] = frozenset()
    """Paths of files that the agent is to leave alone."""
    attempt: int = 0
    """How many requests before this one its instance has not answered with a success."""

    @property
    def version(self) -> str:
        """The bundle's."""
        return self.published.bundle.version

    @property
    def files(self) -> FileSet:
        """What of the bundle its instance gets as files."""
        return self.published.files if self.about.takes_actions else self.published.bundle


class Stream:
    """The way to one instance: the newest request to apply, messages of the dialect's own.

    However slow its client is, no more than that waits here.
    """

    def __init__(self, identity: Identity, generation: int) -> None:
        self.identity = identity
        self.generation = generation
        self.on_end: Callable[[], object] = lambda: None
        """What is to happen when it is to end."""
        self._apply: Apply | None = None
        self._messages: deque[bytes] = deque()
        self._filled = asyncio.Event()

    def ask(self, apply: Apply) -> None:
        """Send a request to apply, instead of one that was not taken yet."""
        self._apply = apply
        self._filled.set()

    def say(self, message: bytes) -> None:
        """Send a message of the dialect's own, before any request to apply."""
        if len(self._messages) >= MESSAGES_MAX:
            self.end()
            return
        self._messages.append(message)
        self._filled.set()

    def end(self) -> None:
        """End it, also while its client takes nothing."""
        self.on_end()

    async def next(self) -> Apply | bytes:
        """Wait for what is to be sent next."""
        await self._filled.wait()
        if self._messages:
            found: Apply | bytes | None = self._messages.popleft()
        else:
            found, self._apply = self._apply, None
        if not self._messages and self._apply is None:
            self._filled.clear()
        assert found is not None
        return found
