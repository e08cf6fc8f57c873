"""The ``lifecycle.preStop`` hook of a container."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import structlog

from gatehouse.standalone.node import exec, pods

log = structlog.get_logger("gatehouse.node")


async def run_pre_stop(pod: Mapping[str, Any], address: str, start: exec.Start) -> None:
    """Run the preStop hook of the first container. Failures are logged, as in Kubernetes.

    The caller must limit the time.
    """
    container = pod["spec"]["containers"][0]
    match (container.get("lifecycle") or {}).get("preStop"):
        case {"sleep": {"seconds": seconds}}:
            await asyncio.sleep(seconds)
        case {"exec": {"command": command}}:
            await _run(start, command)
        case {"httpGet": http_get}:
            await _get(pods.url(container, http_get, address))


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
