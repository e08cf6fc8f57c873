"""Authorization of agents' calls, and serving the two directions of a stream."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio
import msgspec
import structlog

from gatehouse.dataplane.agent_limits import (
    REQUESTS_PER_PUBLISHED,
    MessageRefused,
    parse_message,
)
from gatehouse.transports.agents import call_rates, certificate_auth
from gatehouse.transports.agents.fleet import AgentFleet
from gatehouse.transports.agents.stream import Apply, Stream
from gatehouse.transports.agents.token_auth import (
    AuthenticationUnavailable,
    Denied,
    Identity,
    TokenReviews,
)

log = structlog.get_logger("gatehouse.agents")

OWNER_LABEL = "owner-name"
"""Label by which agents v3 claim to belong to a Deployment: ``namespace_name``."""

RECHECK_SECONDS = 300.0
"""Interval in seconds of the reviews of an open stream's token, give or take a fifth."""

REPORT_DELAY_SECONDS = 0.1
"""Delay in seconds between a response and the search for the Gateway that has the data."""

MessageT = TypeVar("MessageT")

CallContext = grpc.aio.ServicerContext[Any, Any]


class UnauthorizedRequest(msgspec.Struct, frozen=True):
    """A denied request for data of another Gateway."""

    identity: Identity
    what: str
    """Action of the agent, such as "asked for a file". Never text from the agent, so that only few
    of these differ."""
    gateway: str = ""
    """``namespace/name`` of the Gateway that has the data; empty if unknown."""


Identify = Callable[[CallContext], Awaitable[Identity]]
"""Returns the identity of a call. Raises Denied or Unavailable."""


def by_token(reviews: TokenReviews) -> Identify:
    """Identify callers only by their tokens."""
    return lambda context: reviews.identify(context.invocation_metadata() or ())


def by_certificate(certificates: certificate_auth.CertificateAuthenticator) -> Identify:
    """Identify callers only by the certificates of their connections."""

    async def identify(context: CallContext) -> Identity:
        return certificates.identify(context.auth_context())

    return identify


class CallAuthorizer:
    """Identifies callers, limits the rate of their calls, and denies requests for data of other
    Gateways."""

    def __init__(
        self, identify: Identify, on_trespass: Callable[[UnauthorizedRequest], None]
    ) -> None:
        self._identify = identify
        self._on_trespass = on_trespass
        self._calls = call_rates.CallRates(time.monotonic, call_rates.CALL_LIMIT)
        self._requests = call_rates.CallRates(time.monotonic, call_rates.REQUEST_LIMIT)

    async def identify(self, context: CallContext) -> Identity:
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
        except AuthenticationUnavailable as error:
            await abort(context, grpc.StatusCode.UNAVAILABLE, str(error))
        await self.check_owner(context, identity, _owners(metadata))
        return identity

    @contextlib.asynccontextmanager
    async def until_revoked(
        self, identity: Identity, context: CallContext, end: Callable[[], object]
    ) -> AsyncIterator[None]:
        """Call ``end`` when the caller's credential is no longer valid, unless the context exits.

        A certificate ends at its expiry. A token is reviewed again and again.
        """
        watch = asyncio.create_task(self._watch(identity, context))
        watch.add_done_callback(lambda done: None if done.cancelled() else end())
        try:
            yield
        finally:
            watch.cancel()

    async def _watch(self, identity: Identity, context: CallContext) -> None:
        """Return when the credential of a call is no longer valid."""
        if identity.expires:
            await asyncio.sleep(certificate_auth.seconds_left(identity.expires))
            return
        while True:
            await asyncio.sleep(RECHECK_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311
            try:
                if (await self._identify(context)).gateway == identity.gateway:
                    continue
                reason = "the token belongs to another Gateway now"
            except AuthenticationUnavailable:
                continue
            except Denied as error:
                reason = str(error)
            log.warning(
                "stream of an agent ended: credential revoked",
                gateway=identity.gateway,
                instance=identity.instance,
                reason=reason,
            )
            return

    async def check_owner(
        self, context: CallContext, identity: Identity, claimed: Iterable[str]
    ) -> None:
        """Abort the call if it claims another Deployment than the token's. A claim is optional."""
        for owner in claimed:
            if identity.owner and owner != identity.owner:
                why = f"the token belongs to {identity.owner}, not to {owner} ({OWNER_LABEL})"
                await self.deny(context, UnauthorizedRequest(identity, "claimed to be a Pod"), why)

    async def deny(self, context: CallContext, request: UnauthorizedRequest, why: str) -> NoReturn:
        """Report an unauthorized request and abort the call with PERMISSION_DENIED."""
        self._report(request)
        await abort(context, grpc.StatusCode.PERMISSION_DENIED, why)

    def _report(self, request: UnauthorizedRequest) -> None:
        log.warning(
            "unauthorized agent request denied",
            gateway=request.identity.gateway,
            instance=request.identity.instance,
            what=request.what,
            of=request.gateway,
        )
        self._on_trespass(request)

    async def count(self, context: CallContext, identity: Identity, size: int = 0) -> None:
        """Count a call of the caller. Abort it if there are too many; ``size``: its bytes."""
        try:
            self._calls.count(identity, size)
        except MessageRefused as refused:
            await self.abort_refused(context, identity, refused)

    def count_request(self, identity: Identity, size: int, published: float = 0.0) -> None:
        """Count a message inside a stream, or a fetched file, of ``size`` bytes.

        ``published``: number of files or resources of the caller's Gateway. Raises MessageRefused.
        """
        self._requests.count(identity, size, REQUESTS_PER_PUBLISHED * published)

    async def receive(
        self,
        context: CallContext,
        parse: Callable[[bytes], MessageT],
        message: bytes,
        *,
        counted: bool = True,
    ) -> tuple[Identity, MessageT]:
        """Return the identity of the caller and the parsed request of its call.

        A message is parsed only for a known caller, because it takes much more memory than its
        bytes. ``counted``: calls like this are limited in number.
        """
        identity = await self.identify(context)
        if counted:
            await self.count(context, identity, len(message))
        try:
            return identity, parse_message(parse, message)
        except MessageRefused as refused:
            await self.abort_refused(context, identity, refused)

    async def parsed(
        self,
        identity: Identity,
        parse: Callable[[bytes], MessageT],
        messages: AsyncIterator[bytes],
        published: float = 0.0,
    ) -> AsyncIterator[MessageT]:
        """Yield the parsed messages of a stream, limited in rate. Raises MessageRefused.

        ``published``: see :meth:`count_request`.
        """
        async for message in messages:
            self.count_request(identity, len(message), published)
            yield parse_message(parse, message)

    async def parsed_to_end(
        self,
        context: CallContext,
        identity: Identity,
        parse: Callable[[bytes], MessageT],
        messages: AsyncIterator[bytes],
        published: float = 0.0,
    ) -> AsyncIterator[MessageT]:
        """Count a call, and yield the parsed messages of its stream. Abort it beyond the limits.

        ``published``: see :meth:`count_request`.
        """
        await self.count(context, identity)
        try:
            async for message in self.parsed(identity, parse, messages, published):
                yield message
        except MessageRefused as refused:
            await self.abort_refused(context, identity, refused)

    async def abort_refused(
        self, context: CallContext, identity: Identity, refused: MessageRefused
    ) -> NoReturn:
        """Abort a call whose message exceeds the limits of agents."""
        if refused.logged:
            log.warning(
                "message of an agent refused",
                gateway=identity.gateway,
                instance=identity.instance,
                reason=str(refused),
            )
        await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(refused))

    async def abort_not_found(
        self,
        context: CallContext,
        identity: Identity,
        what: str,
        holder: Callable[[], str],
        why: str,
    ) -> NoReturn:
        """Abort a call for data that the caller's Gateway does not have.

        The response does not depend on whether another Gateway has it: otherwise a caller could
        guess content. ``holder`` returns that Gateway, or "". It is called after the response, so
        that the time does not depend on it either. The search takes time, so such calls are
        counted.
        """
        await self.count(context, identity)
        asyncio.get_running_loop().call_later(
            REPORT_DELAY_SECONDS, self._report_foreign, identity, what, holder
        )
        await abort(context, grpc.StatusCode.NOT_FOUND, why)

    def _report_foreign(self, identity: Identity, what: str, holder: Callable[[], str]) -> None:
        if gateway := holder():
            self._report(UnauthorizedRequest(identity, f"asked for {what}", gateway))


def _owners(metadata: Iterable[tuple[str, str | bytes]]) -> list[str]:
    return [
        value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for key, value in metadata
        if key == OWNER_LABEL
    ]


async def abort(context: CallContext, code: grpc.StatusCode, why: str) -> NoReturn:
    """Abort the call with status ``code``."""
    await context.abort(code, why)
    raise AssertionError("abort raises")


async def serve_stream(
    callers: CallAuthorizer,
    fleet: AgentFleet,
    identity: Identity,
    context: CallContext,
    read: Callable[[Stream], Coroutine[Any, Any, None]],
    encode: Callable[[Apply], bytes],
) -> None:
    """Serve the stream of ``identity`` until either side ends it.

    ``read`` processes incoming messages; ``encode`` serialises a request to apply.
    """
    await callers.count(context, identity)
    stream = fleet.open(identity)
    if stream is None:
        await abort(
            context, grpc.StatusCode.UNAVAILABLE, "too many streams of this instance are still open"
        )
    # Sent at once: an up-to-date agent gets no other message for a long time.
    await context.send_initial_metadata(())
    reading = asyncio.create_task(read(stream))
    writing = asyncio.create_task(_write(stream, context, encode))
    stream.on_end = writing.cancel
    try:
        async with callers.until_revoked(identity, context, stream.end):
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done() and isinstance(refused := reading.exception(), MessageRefused):
            await callers.abort_refused(context, identity, refused)
        if writing.done():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "stream ended by the server")
    finally:
        fleet.close(stream)
        for task in (reading, writing):
            task.cancel()
        await asyncio.gather(reading, writing, return_exceptions=True)


async def _write(stream: Stream, context: CallContext, encode: Callable[[Apply], bytes]) -> None:
    while True:
        message = await stream.next()
        await context.write(message if isinstance(message, bytes) else encode(message))
