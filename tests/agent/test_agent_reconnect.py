"""Reconnection attempts and the pauses between them."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from gatehouse.agent.reconnect import ReconnectLoop
from kube_base.runtime.backoff import BackoffPolicy

BACKOFF = BackoffPolicy(first=1.0, maximum=10.0, jitter=0.5)


def lost() -> grpc.aio.AioRpcError:
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, none, none, "away")


async def pauses(*attempts: str) -> list[float]:
    """Return the pause after each attempt, which is accepted or not and fails or not."""
    pauses_seen, left = list[float](), list(attempts)

    async def sleep(seconds: float) -> None:
        pauses_seen.append(seconds)
        if not left:
            raise asyncio.CancelledError

    reconnecting = ReconnectLoop("server", BACKOFF, sleep)

    async def converse() -> None:
        assert not reconnecting.connected
        attempt = left.pop(0)
        if "welcome" in attempt:
            reconnecting.established()
            reconnecting.established()
            assert reconnecting.connected
        if "lost" in attempt:
            raise lost()
        if "impossible" in attempt:
            raise OSError("no token")

    with pytest.raises(asyncio.CancelledError):
        await reconnecting.run(converse)
    assert not reconnecting.connected
    return pauses_seen


@pytest.mark.parametrize(
    ("attempts", "longest"),
    [
        (["welcome, then lost"], [1]),
        (["welcome, then the end"], [1]),
        (["lost", "lost", "lost", "lost", "lost"], [2, 4, 8, 10, 10]),
        (["impossible", "lost", "the end"], [2, 4, 8]),
        (["the end", "the end"], [2, 4]),
        (["lost", "lost", "welcome, then lost", "lost"], [2, 4, 1, 2]),
        (["lost"] * 2000, [2, 4, 8, *[10] * 1997]),
    ],
)
async def test_pause_grows_while_connection_is_rejected(
    attempts: list[str], longest: list[float]
) -> None:
    waited = await pauses(*attempts)
    assert len(waited) == len(longest)
    for seconds, most in zip(waited, longest, strict=True):
        assert most / 2 <= seconds <= most


async def test_internal_error_is_not_retried() -> None:
    async def broken() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        await ReconnectLoop("server", BACKOFF).run(broken)
