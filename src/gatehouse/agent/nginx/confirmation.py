"""Whether a reload took: new workers serve the version, old ones no longer accept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from gatehouse.agent.error_log import emergencies
from gatehouse.agent.nginx.master import has_stopped_accepting
from gatehouse.agent.nginx.supervisor import Supervisor
from gatehouse.runtime import unix_http

BASE_SECONDS = 3.0
"""A busy port costs NGINX five attempts of half a second before it says so."""

MAX_SECONDS = 30.0

POLL_SECONDS = 0.02

TIMEOUT_MESSAGE = "the reload was not confirmed within"
"""What is said where nothing speaks against it; it may still come."""

REQUIRED_REPLIES = 3
"""How many new connections in a row must be answered with the new version."""


def timeout_seconds(test_seconds: float) -> float:
    """How long to wait, given how long ``nginx -t`` took on the same files."""
    return min(BASE_SECONDS + 3 * test_seconds, MAX_SECONDS)


async def served_version(socket: Path) -> tuple[str, int] | None:
    """Ask which version is served, and by which worker; None: no answer."""
    words = (await unix_http.get(socket, "/version") or "").rstrip("\n").split(" ")
    if len(words) != 2 or not words[1].isdecimal():
        return None
    return words[0], int(words[1])


async def wait_confirmed(
    supervisor: Supervisor,
    socket: Path,
    version: str,
    old: frozenset[int],
    position: int,
    seconds: float,
    on_first: Callable[[], None] = lambda: None,
) -> str:
    """Wait until ``version`` is what is served; returns why it is not, empty when it is.

    ``old``: the workers to be replaced; ``position``: the error log's end before the reload.
    ``on_first`` is called when ``version`` seems to be served; that is then made sure of.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    agreed, seen, complaints = 0, False, list[str]()
    while asyncio.get_running_loop().time() < deadline:
        lines, position = supervisor.error_log.lines(position)
        complaints += emergencies(lines)
        verdict = _final(complaints)
        if verdict:
            return verdict
        if await _agrees(supervisor, socket, version, old):
            if not seen:
                seen = True
                on_first()
            agreed += 1
            if agreed == REQUIRED_REPLIES:
                return ""
        else:
            agreed = 0
            await asyncio.sleep(POLL_SECONDS)
    return complaints[0] if complaints else f"{TIMEOUT_MESSAGE} {seconds:.1f} s"


async def _agrees(supervisor: Supervisor, socket: Path, version: str, old: frozenset[int]) -> bool:
    master = supervisor.master
    # The master starts new workers 100 ms before it retires the old; until then both accept.
    if master is None or not all(has_stopped_accepting(worker) for worker in old):
        return False
    answer = await served_version(socket)
    return answer is not None and answer[0] == version and answer[1] in master.workers() - old


def _final(complaints: list[str]) -> str:
    for complaint in complaints:
        if "could not bind" in complaint:
            # It tells that it gave up, not on which address; the attempts before it do.
            return next((line for line in complaints if line.startswith("bind()")), complaint)
        if not complaint.startswith("bind()"):
            return complaint
    return ""
