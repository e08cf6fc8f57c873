"""Listening sockets of a sidecar, each of which is open while any worker of NGINX may use it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from gatehouse.sidecars.base.service import InvalidConfigError

ACCEPT_QUEUE_LENGTH = 4096
"""Length of the accept queue. If it is full, a connection of the proxy fails at once."""

Target = TypeVar("Target")
_Target_contra = TypeVar("_Target_contra", contravariant=True)


class ListeningSocket(Protocol[_Target_contra]):
    """A socket that accepts connections."""

    def configure(self, target: _Target_contra) -> None:
        """Serve a target from now on."""

    async def close(self) -> None:
        """Accept no further connections, and wait until those that are open have ended."""


class SocketTable(Generic[Target]):
    """The sockets in one directory."""

    def __init__(
        self,
        directory: Path,
        linger: float,
        listen: Callable[[Path, Target], Awaitable[ListeningSocket[Target]]],
    ) -> None:
        """``linger``: time in seconds for which an unused socket stays open. ``listen`` opens a
        socket, and raises OSError."""
        self.idle = asyncio.Event()
        """Set while there is no socket and no connection."""
        self._directory, self._linger, self._listen = directory, linger, listen
        self._sockets: dict[str, ListeningSocket[Target]] = {}
        self._close_timers: dict[str, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def serve(self, targets: Mapping[str, Target]) -> None:
        """Listen on the sockets of ``targets``, and close others after the linger time.

        All or nothing: raises InvalidConfigError without applying any change.
        """
        opened: dict[str, ListeningSocket[Target]] = {}
        try:
            for name, target in targets.items():
                if name not in self._sockets:
                    path = self._directory / name
                    path.unlink(missing_ok=True)
                    opened[name] = await self._listen(path, target)
        except OSError as error:
            self._sockets.update(opened)
            for name in opened:
                self._close(name)
            raise InvalidConfigError(f"{path}: {error.strerror}") from error
        self._sockets.update(opened)
        for name, socket in self._sockets.items():
            if name in targets:
                socket.configure(targets[name])
                self._keep_open(name)
            elif name not in self._close_timers:
                loop = asyncio.get_running_loop()
                self._close_timers[name] = loop.call_later(self._linger, self._close, name)
        self._update_idle()

    def _keep_open(self, name: str) -> None:
        timer = self._close_timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _close(self, name: str) -> None:
        self._keep_open(name)
        socket = self._sockets.pop(name)
        (self._directory / name).unlink(missing_ok=True)
        task = asyncio.create_task(socket.close())
        self._closing.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        self._update_idle()

    def _update_idle(self) -> None:
        if self._sockets or self._closing:
            self.idle.clear()
        else:
            self.idle.set()

    async def drain(self) -> None:
        """Stop listening, and wait until all connections have ended."""
        for name in tuple(self._sockets):
            self._close(name)
        await asyncio.gather(*self._closing)
