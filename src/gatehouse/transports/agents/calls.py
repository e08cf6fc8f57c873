"""One call of an agent: whose it is, and the two directions of its stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import grpc
import grpc.aio
import structlog

from gatehouse.transports.agents.authentication import (
    Denied,
    Identity,
    TokenReviews,
    Unavailable,
)
from gatehouse.transports.agents.fleet import Apply, Fleet, Stream

log = structlog.get_logger("gatehouse.agents")

Context = grpc.aio.ServicerContext[Any, Any]


async def caller(reviews: TokenReviews, context: Context) -> Identity:
    """Give whose call this is; a call of nobody known ends here."""
    try:
        return await reviews.identify(context.invocation_metadata() or ())
    except Denied as error:
        # Only for what is definitely bad: agent v3 of the field does not try again after this.
        log.warning("agent denied", reason=str(error))
        await abort(context, grpc.StatusCode.UNAUTHENTICATED, str(error))
    except Unavailable as error:
        await abort(context, grpc.StatusCode.UNAVAILABLE, str(error))


async def abort(context: Context, code: grpc.StatusCode, why: str) -> NoReturn:
    """End the call with ``code``."""
    await context.abort(code, why)
    raise AssertionError("abort raises")


async def converse(
    fleet: Fleet,
    identity: Identity,
    context: Context,
    read: Callable[[Stream], Coroutine[Any, Any, None]],
    encode: Callable[[Apply], bytes],
) -> None:
    """Serve the stream of ``identity`` until it ends on either side.

    ``read`` takes in what comes; ``encode`` writes a request to apply in the dialect's words.
    """
    stream = fleet.open(identity)
    reading = asyncio.create_task(read(stream))
    writing = asyncio.create_task(_write(stream, context, encode))
    try:
        await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
        if writing.done():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this stream was ended here")
    finally:
        fleet.close(stream)
        for task in (reading, writing):
            task.cancel()
        await asyncio.gather(reading, writing, return_exceptions=True)


async def _write(stream: Stream, context: Context, encode: Callable[[Apply], bytes]) -> None:
    while (message := await stream.outgoing.get()) is not None:
        await context.write(message if isinstance(message, bytes) else encode(message))
