"""Outgoing messages of one instance's stream. The client may be slower than the messages arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from gatehouse.dataplane.file_set import FileSet
from gatehouse.transports.agents import session
from gatehouse.transports.agents.publication import Published
from gatehouse.transports.agents.token_auth import Identity

MAX_WAITING_MESSAGES = 16
"""Maximum number of protocol messages that may wait on a stream. Beyond this the stream is
ended."""


class Apply(msgspec.Struct, frozen=True):
    """A request to apply a file set, with the instance's description of its NGINX."""

    published: Published
    correlation: str
    about: session.Register
    upstream: str = ""
    """If set, request only the servers of this upstream."""
    unmanaged: frozenset[str] = frozenset()
    """Paths of files that the agent must leave alone."""
    attempt: int = 0
    """Number of earlier requests to this instance that did not succeed."""

    @property
    def version(self) -> str:
        """Version of the file set."""
        return self.published.file_set.version

    @property
    def files(self) -> FileSet:
        """The files sent to this instance: without endpoints if these are sent separately."""
        return self.published.files if self.about.takes_actions else self.published.file_set


class Stream:
    """Outgoing queue of one instance: the newest request to apply and protocol messages.

    However slow the client is, no more than that is queued.
    """

    def __init__(self, identity: Identity, generation: int) -> None:
        self.identity = identity
        self.generation = generation
        self.on_end: Callable[[], object] = lambda: None
        """Called to end the stream."""
        self._request: Apply | None = None
        self._messages: deque[bytes] = deque()
        self._filled = asyncio.Event()

    def send_apply(self, apply: Apply) -> None:
        """Queue a request to apply. It replaces one that was not sent yet."""
        self._request = apply
        self._filled.set()

    def send_message(self, message: bytes) -> None:
        """Queue a protocol message before any request to apply. End the stream if too many wait."""
        if len(self._messages) >= MAX_WAITING_MESSAGES:
            self.end()
            return
        self._messages.append(message)
        self._filled.set()

    def end(self) -> None:
        """End the stream, even if its client reads nothing."""
        self.on_end()

    async def next(self) -> Apply | bytes:
        """Wait for the next message to send."""
        await self._filled.wait()
        if self._messages:
            message: Apply | bytes | None = self._messages.popleft()
        else:
            message, self._request = self._request, None
        if not self._messages and self._request is None:
            self._filled.clear()
        assert message is not None
        return message
