"""What a container asks to be done before it is told to end (``lifecycle.preStop``)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import structlog

from gatehouse.standalone.node import exec, pods

log = structlog.get_logger("gatehouse.node")


async def before_end(pod: Mapping[str, Any], address: str, start: exec.Start) -> None:
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


async def _run(start: exec.Start, command: Sequence[str]) -> None:
    try:
        status = await exec.run(start, command)
    except OSError as error:
        log.warning("preStop failed", command=list(command), error=str(error))
        return
    if status:
        log.warning("preStop failed", command=list(command), status=status)


async def _get(url: str) -> None:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            await response.read()
    except (aiohttp.ClientError, OSError) as error:
        log.warning("preStop failed", url=url, error=str(error))
