"""One call of an agent: whose it is, what is not theirs, and the two directions of its stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, NoReturn

import grpc
import grpc.aio
import msgspec
import structlog

from gatehouse.transports.agents import certificate_auth
from gatehouse.transports.agents.fleet import Fleet
from gatehouse.transports.agents.stream import Apply, Stream
from gatehouse.transports.agents.token_auth import Denied, Identity, TokenReviews, Unavailable

log = structlog.get_logger("gatehouse.agents")

OWNER_LABEL = "owner-name"
"""Label by which agents v3 claim to be part of a Deployment: ``namespace_name``."""

Context = grpc.aio.ServicerContext[Any, Any]


class UnauthorizedRequest(msgspec.Struct, frozen=True):
    """An agent asked for what belongs to another gateway, and did not get it."""

    identity: Identity
    what: str
    """What it did, such as "asked for a file"; never in its own words, so that few of these differ.
    """
    gateway: str = ""
    """Whose it is, ``namespace/name``; empty if that is not known."""


Identify = Callable[[Context], Awaitable[Identity]]
"""Gives whose call it is; raises Denied or Unavailable."""


def by_token(reviews: TokenReviews) -> Identify:
    """Tell callers by their tokens alone."""
    return lambda context: reviews.identify(context.invocation_metadata() or ())


def by_certificate(certificates: certificate_auth.CertificateAuthenticator) -> Identify:
    """Tell callers by the certificates of their connections alone."""

    async def identify(context: Context) -> Identity:
        return certificates.identify(context.auth_context())

    return identify


class CallAuthorizer:
    """Tells who calls, and ends the calls of those who ask for what is not theirs."""

    def __init__(
        self, identify: Identify, on_trespass: Callable[[UnauthorizedRequest], None]
    ) -> None:
        self._identify = identify
        self._on_trespass = on_trespass

    async def identify(self, context: Context) -> Identity:
        """Give whose call this is; a call of nobody known, or under a false name, ends here."""
        metadata = tuple(context.invocation_metadata() or ())
        try:
            identity = await self._identify(context)
        except Denied as error:
            # Only for what is definitely bad: agent v3 of the field does not try again after this.
            log.warning("agent denied", reason=str(error))
            await abort(context, grpc.StatusCode.UNAUTHENTICATED, str(error))
        except Unavailable as error:
            await abort(context, grpc.StatusCode.UNAVAILABLE, str(error))
        await self.check_owner(context, identity, _owners(metadata))
        return identity

    async def check_owner(
        self, context: Context, identity: Identity, claimed: Iterable[str]
    ) -> None:
        """End the call if it claims another Deployment than the token's; no claim is needed."""
        for owner in claimed:
            if identity.owner and owner != identity.owner:
                why = f"the token is one of {identity.owner}, not of {owner} ({OWNER_LABEL})"
                await self.deny(context, UnauthorizedRequest(identity, "claimed to be a Pod"), why)

    async def deny(self, context: Context, trespass: UnauthorizedRequest, why: str) -> NoReturn:
        """End the call, and have it noted."""
        log.warning(
            "agent refused",
            gateway=trespass.identity.gateway,
            instance=trespass.identity.instance,
            what=trespass.what,
            of=trespass.gateway,
        )
        self._on_trespass(trespass)
        await abort(context, grpc.StatusCode.PERMISSION_DENIED, why)

    async def missing(
        self, context: Context, identity: Identity, what: str, holder: str, why: str
    ) -> NoReturn:
        """End a call for what the caller's gateway has not: forbidden if ``holder`` has it."""
        if holder:
            refused = f"{what} of another Gateway than {identity.gateway}, the caller's own"
            await self.deny(
                context, UnauthorizedRequest(identity, f"asked for {what}", holder), refused
            )
        await abort(context, grpc.StatusCode.NOT_FOUND, why)


def _owners(metadata: Iterable[tuple[str, str | bytes]]) -> list[str]:
    return [
        value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for key, value in metadata
        if key == OWNER_LABEL
    ]


@contextlib.contextmanager
def cancel_at_expiry(identity: Identity, end: Callable[[], object]) -> Iterator[None]:
    """Call ``end`` when ``identity`` is nobody any more, unless that is left first."""
    if not identity.expires:
        yield
        return
    timer = asyncio.get_running_loop().call_later(
        certificate_auth.seconds_left(identity.expires), end
    )
    try:
        yield
    finally:
        timer.cancel()


async def abort(context: Context, code: grpc.StatusCode, why: str) -> NoReturn:
    """End the call with ``code``."""
    await context.abort(code, why)
    raise AssertionError("abort raises")


async def serve_stream(
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
    if stream is None:
        await abort(context, grpc.StatusCode.UNAVAILABLE, "older streams have not ended yet")
    reading = asyncio.create_task(read(stream))
    writing = asyncio.create_task(_write(stream, context, encode))
    stream.on_end = writing.cancel
    try:
        with cancel_at_expiry(identity, stream.end):
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
        if writing.done():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this stream was ended here")
    finally:
        fleet.close(stream)
        for task in (reading, writing):
            task.cancel()
        await asyncio.gather(reading, writing, return_exceptions=True)


async def _write(stream: Stream, context: Context, encode: Callable[[Apply], bytes]) -> None:
    # At once: an agent that has everything already is told nothing more for a long time.
    await context.send_initial_metadata(())
    while True:
        message = await stream.next()
        await context.write(message if isinstance(message, bytes) else encode(message))
