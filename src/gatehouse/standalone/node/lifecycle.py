"""What a container asks to be done before it is told to end (``lifecycle.preStop``)."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp
import structlog

from gatehouse.standalone.node import pods

log = structlog.get_logger("gatehouse.node")

Start = Callable[[Sequence[str]], subprocess.Popen[bytes]]
"""Starts words beside the container's process, with its environment."""


async def before_end(pod: Mapping[str, Any], address: str, start: Start) -> None:
    """Do what the first container asks for, and wait for it; failures are logged, as in Kubernetes.

    The caller limits the time.
    """
    container = pod["spec"]["containers"][0]
    match (container.get("lifecycle") or {}).get("preStop"):
        case {"sleep": {"seconds": seconds}}:
            await asyncio.sleep(seconds)
        case {"exec": {"command": command}}:
            await _run(start, command)
        case {"httpGet": asked}:
            await _get(pods.url(container, asked, address))


async def _run(start: Start, command: Sequence[str]) -> None:
    try:
        child = start(command)
    except OSError as error:
        log.warning("preStop failed", command=list(command), error=str(error))
        return
    try:
        while child.poll() is None:  # noqa: ASYNC110 (not a child of asyncio's)
            await asyncio.sleep(0.05)
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
    if child.returncode:
        log.warning("preStop failed", command=list(command), status=child.returncode)


async def _get(url: str) -> None:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            await response.read()
    except (aiohttp.ClientError, OSError) as error:
        log.warning("preStop failed", url=url, error=str(error))
