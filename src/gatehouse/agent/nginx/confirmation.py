"""Confirmation of a reload: new workers serve the version, and old ones stopped accepting."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from gatehouse.agent.error_log import emergency_messages
from gatehouse.agent.nginx import master as masters
from gatehouse.agent.nginx.supervisor import NginxSupervisor
from gatehouse.runtime import unix_http
from kube_base.runtime.time_limits import scaled

BASE_SECONDS = scaled(3.0)
"""Base timeout in seconds. NGINX tries a busy port five times, every half second."""

_MAX_SECONDS = scaled(30.0)

UNKNOWN_LOAD_SECONDS = 10.0
"""Assumed until NGINX has read its files under this agent."""

_POLL_SECONDS = 0.005

TIMEOUT_MESSAGE = "the reload was not confirmed within"
"""Start of the error after a timeout without an NGINX error. The reload may still take effect."""

REQUIRED_REPLIES = 3
"""Number of consecutive new connections that must report the new version."""


def timeout_seconds(load_seconds: float) -> float:
    """Return the timeout in seconds, given how long NGINX took to read about the same files."""
    return min(BASE_SECONDS + 3 * load_seconds, _MAX_SECONDS)


async def served_version(socket: Path) -> tuple[str, int] | None:
    """Return the served version and the pid of the worker that reported it. None: no response."""
    fields = (await unix_http.get(socket, "/version") or "").rstrip("\n").split(" ")
    if len(fields) != 2 or not fields[1].isdecimal():
        return None
    return fields[0], int(fields[1])


async def wait_confirmed(
    supervisor: NginxSupervisor,
    socket: Path,
    version: str,
    old: frozenset[int],
    position: int,
    seconds: float,
    on_first: Callable[[], None] = lambda: None,
) -> str:
    """Wait until `version` is served. Return why it is not, empty if it is.

    The listening sockets then are held.

    `old`: the workers to be replaced. `position`: the end of the error log before the reload.
    `on_first` is called at the first response with `version`, before further responses confirm it.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    confirmations, responded, errors = 0, False, list[str]()
    retired = False
    while asyncio.get_running_loop().time() < deadline:
        lines, position = supervisor.error_log.lines(position)
        errors += emergency_messages(lines)
        failure = _failure(errors)
        if failure:
            return failure
        retired = retired or _retire(supervisor, old)
        if await _is_confirmed(supervisor, socket, version, old):
            if not responded:
                responded = True
                on_first()
            confirmations += 1
            if confirmations == REQUIRED_REPLIES:
                await supervisor.hold_sockets()
                return ""
        else:
            confirmations = 0
            await asyncio.sleep(_POLL_SECONDS)
    return errors[0] if errors else f"{TIMEOUT_MESSAGE} {seconds:.1f} s"


def _retire(supervisor: NginxSupervisor, old: frozenset[int]) -> bool:
    """End the old workers as soon as the new ones accept connections. Return whether that is so.

    The master does it 100 ms after it started the new workers. Until then the kernel gives most
    connections to the old. If an old worker exits earlier, the master starts no other one for it:
    it blocks SIGCHLD until it has marked the old workers as exiting.
    """
    new = supervisor.process.children() - old if supervisor.process is not None else frozenset()
    if not new:
        return False
    accepting = frozenset(filter(masters.is_worker, old))
    ready = sum(map(masters.is_worker, new)) >= len(accepting)
    if ready:
        masters.send(accepting, signal.SIGQUIT)
    return ready


async def _is_confirmed(
    supervisor: NginxSupervisor, socket: Path, version: str, old: frozenset[int]
) -> bool:
    master = supervisor.process
    if master is None or not all(map(masters.has_stopped_accepting, old)):
        return False
    served = await served_version(socket)
    return served is not None and served[0] == version and served[1] in master.children() - old


def _failure(errors: list[str]) -> str:
    for error in errors:
        if "could not bind" in error:
            # This line does not name the address; the lines of the failed attempts do.
            return next((line for line in errors if line.startswith("bind()")), error)
        if not error.startswith("bind()"):
            return error
    return ""
