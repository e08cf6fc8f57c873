"""Authorization of agents' calls, and serving the two directions of a stream."""

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
"""Label by which agents v3 claim to belong to a Deployment: ``namespace_name``."""

Context = grpc.aio.ServicerContext[Any, Any]


class UnauthorizedRequest(msgspec.Struct, frozen=True):
    """A denied request for data of another Gateway."""

    identity: Identity
    what: str
    """Action of the agent, such as "asked for a file". Never text from the agent, so that only few
    of these differ."""
    gateway: str = ""
    """``namespace/name`` of the Gateway that has the data; empty if unknown."""


Identify = Callable[[Context], Awaitable[Identity]]
"""Returns the identity of a call. Raises Denied or Unavailable."""


def by_token(reviews: TokenReviews) -> Identify:
    """Identify callers only by their tokens."""
    return lambda context: reviews.identify(context.invocation_metadata() or ())


def by_certificate(certificates: certificate_auth.CertificateAuthenticator) -> Identify:
    """Identify callers only by the certificates of their connections."""

    async def identify(context: Context) -> Identity:
        return certificates.identify(context.auth_context())

    return identify


class CallAuthorizer:
    """Identifies callers and denies requests for data of other Gateways."""

    def __init__(
        self, identify: Identify, on_trespass: Callable[[UnauthorizedRequest], None]
    ) -> None:
        self._identify = identify
        self._on_trespass = on_trespass

    async def identify(self, context: Context) -> Identity:
        """Return the identity of the caller. Abort the call if it is unknown or claims another
        owner."""
        metadata = tuple(context.invocation_metadata() or ())
        try:
            identity = await self._identify(context)
        except Denied as error:
            # Only for definitely invalid credentials: NGINX Agent v3 does not retry after this
            # status.
            log.warning("agent denied", reason=str(error))
            await abort(context, grpc.StatusCode.UNAUTHENTICATED, str(error))
        except Unavailable as error:
            await abort(context, grpc.StatusCode.UNAVAILABLE, str(error))
        await self.check_owner(context, identity, _owners(metadata))
        return identity

    async def check_owner(
        self, context: Context, identity: Identity, claimed: Iterable[str]
    ) -> None:
        """Abort the call if it claims another Deployment than the token's. A claim is optional."""
        for owner in claimed:
            if identity.owner and owner != identity.owner:
                why = f"the token belongs to {identity.owner}, not to {owner} ({OWNER_LABEL})"
                await self.deny(context, UnauthorizedRequest(identity, "claimed to be a Pod"), why)

    async def deny(self, context: Context, request: UnauthorizedRequest, why: str) -> NoReturn:
        """Report an unauthorized request and abort the call with PERMISSION_DENIED."""
        log.warning(
            "unauthorized agent request denied",
            gateway=request.identity.gateway,
            instance=request.identity.instance,
            what=request.what,
            of=request.gateway,
        )
        self._on_trespass(request)
        await abort(context, grpc.StatusCode.PERMISSION_DENIED, why)

    async def abort_not_found(
        self, context: Context, identity: Identity, what: str, holder: str, why: str
    ) -> NoReturn:
        """Abort a call for data that the caller's Gateway does not have.

        The status is PERMISSION_DENIED if another Gateway, ``holder``, has it, else NOT_FOUND.
        """
        if holder:
            denied = f"{what} of another Gateway than {identity.gateway}, the caller's own"
            await self.deny(
                context, UnauthorizedRequest(identity, f"asked for {what}", holder), denied
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
    """Call ``end`` when the identity expires, unless the context exits first."""
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
    """Abort the call with status ``code``."""
    await context.abort(code, why)
    raise AssertionError("abort raises")


async def serve_stream(
    fleet: Fleet,
    identity: Identity,
    context: Context,
    read: Callable[[Stream], Coroutine[Any, Any, None]],
    encode: Callable[[Apply], bytes],
) -> None:
    """Serve the stream of ``identity`` until either side ends it.

    ``read`` processes incoming messages; ``encode`` serialises a request to apply.
    """
    stream = fleet.open(identity)
    if stream is None:
        await abort(
            context, grpc.StatusCode.UNAVAILABLE, "too many streams of this instance are still open"
        )
    reading = asyncio.create_task(read(stream))
    writing = asyncio.create_task(_write(stream, context, encode))
    stream.on_end = writing.cancel
    try:
        with cancel_at_expiry(identity, stream.end):
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
        if writing.done():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "stream ended by the server")
    finally:
        fleet.close(stream)
        for task in (reading, writing):
            task.cancel()
        await asyncio.gather(reading, writing, return_exceptions=True)


async def _write(stream: Stream, context: Context, encode: Callable[[Apply], bytes]) -> None:
    # Sent at once: an up-to-date agent gets no other message for a long time.
    await context.send_initial_metadata(())
    while True:
        message = await stream.next()
        await context.write(message if isinstance(message, bytes) else encode(message))
