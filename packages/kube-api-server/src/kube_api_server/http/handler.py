"""Request handler: authentication, authorization, limits, dispatch, metrics and audit."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime

import msgspec
import structlog
from aiohttp import web

from kube_api_server import errors, offload
from kube_api_server.errors import StatusError
from kube_api_server.fairness import schemas
from kube_api_server.fairness.flow_control import RequestFlowControl, too_many_requests
from kube_api_server.fairness.schemas import Flow, SystemUsers
from kube_api_server.http import connections, lists, negotiation, requests, responses, scale
from kube_api_server.http.audit import Audit
from kube_api_server.http.body_reader import BodyReader
from kube_api_server.http.evictions import Evictions
from kube_api_server.http.metrics import RequestMetrics
from kube_api_server.http.nonresource import NonResourceHandlers
from kube_api_server.http.pod_logs import PodLogs
from kube_api_server.http.requests import RequestTarget
from kube_api_server.http.resources import Resources
from kube_api_server.http.reviews import Reviews, token_request
from kube_api_server.identity.authentication import (
    Authenticator,
    impersonated,
    impersonation_needs,
)
from kube_api_server.identity.service_account_tokens import ServiceAccountTokens
from kube_api_server.identity.users import User
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.verbs import Verbs
from kube_api_server.rbac.authorizer import Authorizer
from kube_api_server.rbac.rules import Attributes
from kube_api_server.storage.entries import (
    MismatchError,
    StorageFullError,
    UnavailableError,
)
from kube_api_server.storage.store import ObjectStore
from kube_base.types.request_info import RequestInfo

log = structlog.get_logger("apiserver")

REQUEST_SECONDS = 60.0
"""Timeout in seconds of a write."""

SEAT_BYTES = 256 * 1024
"""Size of a body for each further seat of its request."""

TOO_MANY_REQUESTS = 429


class Limits(msgspec.Struct, frozen=True):
    """Maximum numbers of concurrent reads and writes. Priority levels share their sum as seats."""

    reading: int = 400
    writing: int = 200


class RequestRecord:
    """Facts about a request, collected for metrics and the audit log."""

    def __init__(self) -> None:
        self.verb = ""
        self.user: User | None = None
        self.acting: User | None = None
        self.target: RequestTarget | None = None
        self.reason = ""
        self.streamed = False


class ServerContext(msgspec.Struct, frozen=True):
    """Components that the handler uses."""

    store: ObjectStore
    registry: Registry
    verbs: Verbs
    resources: Resources
    authenticator: Authenticator
    authorizer: Authorizer
    tokens: ServiceAccountTokens
    nonresource: NonResourceHandlers
    metrics: RequestMetrics
    logs: PodLogs
    evictions: Evictions
    audit: Audit | None = None
    limits: Limits = Limits()
    system_users: SystemUsers = SystemUsers()

    def flow_control(self) -> RequestFlowControl:
        """Build the flow control, whose metrics are those of the server."""
        return RequestFlowControl(self.limits.reading + self.limits.writing, self.metrics.registry)


class Handler:
    """Handler of all requests."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._reviews = Reviews(context.authenticator, context.authorizer)
        self._flow_control = context.flow_control()
        self._bodies = BodyReader(self._flow_control)
        self._reading = self._writing = 0
        in_flight = context.metrics.in_flight
        in_flight.labels("readOnly").set_function(lambda: self._reading)
        in_flight.labels("mutating").set_function(lambda: self._writing)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. Failures become Status objects."""
        record, started, received = RequestRecord(), time.perf_counter(), datetime.now(UTC)
        code = 500
        try:
            response = await self._answer(request, record)
            code = response.status
        except (web.HTTPException, asyncio.CancelledError):
            raise
        except Exception as error:
            failure = _failure(request, error)
            code = failure.code
            if code == TOO_MANY_REQUESTS:
                self._context.metrics.rejected.labels("429").inc()
            response = responses.error_response(request, failure)
        finally:
            seconds = None if record.streamed else time.perf_counter() - started
            self._context.metrics.observe(record.verb, record.target, code, seconds)
            if self._context.audit is not None and record.user is not None:
                self._context.audit.record(
                    request, record.verb, record.user, record.acting, record.target, code,
                    record.reason, received,
                )  # fmt: skip
        return response

    async def _answer(self, request: web.BaseRequest, record: RequestRecord) -> web.StreamResponse:
        record.verb = request.method.lower()
        requests.reject_encoding(request)
        info = requests.info(request)
        requests.check_timeout(request, info)
        path = info.path.rstrip("/") or "/"
        if self._context.nonresource.is_open(path):
            return await self._context.nonresource.health(request, path)
        user = record.user = self._context.authenticator.authenticate(request)
        owner = schemas.owner(user)
        if not connections.authenticated(request, owner, exempt=schemas.is_exempt(user)):
            raise too_many_requests(f"too many connections of {owner}")
        offload.FLOW.set(owner)
        user = record.acting = self._impersonated_user(request, user)
        if not info.is_resource:
            return await self._nonresource(request, info.path, user)
        record.verb = info.verb or record.verb
        target = record.target = requests.target(self._context.registry, info)
        self._authorize(user, info, record)
        if target is None:
            raise _not_found()
        if not info.verb:
            raise requests.not_allowed(request)
        flow = schemas.classify(user, attributes(info.verb, target), self._context.system_users)
        if record.verb == "watch" or target.subresource == "log":
            return await self._stream(request, target, record, flow)
        return await self._limited(request, target, record.verb, user, flow)

    async def _nonresource(
        self, request: web.BaseRequest, path: str, user: User
    ) -> web.StreamResponse:
        requested = Attributes(request.method.lower(), path=path)
        if not self._context.authorizer.authorize(user, requested)[0]:
            message = f'forbidden: User "{user.name}" cannot {requested.verb} path "{path}"'
            raise StatusError(403, "Forbidden", message)
        flow = schemas.classify(user, requested, self._context.system_users)
        async with self._flow_control.seat(flow):
            response = self._context.nonresource.find(request, path.rstrip("/") or "/")
            if response is None:
                raise _not_found()
            return await responses.send_in_pieces(request, response)

    def _impersonated_user(self, request: web.BaseRequest, user: User) -> User:
        """Return the impersonated user, or `user`. Raises ApiError."""
        requested = impersonated(request)
        if requested is None:
            return user
        for needed in impersonation_needs(request, requested):
            if not self._context.authorizer.authorize(user, needed)[0]:
                raise _forbidden(user, needed)
        return requested

    def _authorize(self, user: User, info: RequestInfo, record: RequestRecord) -> None:
        requested = Attributes(
            info.verb, info.group, info.resource, info.subresource, info.namespace, info.name
        )
        allowed, record.reason = self._context.authorizer.authorize(user, requested)
        if not allowed:
            raise _forbidden(user, requested, record.reason)

    async def _stream(
        self, request: web.BaseRequest, target: RequestTarget, record: RequestRecord, flow: Flow
    ) -> web.StreamResponse:
        """Answer with a stream. A watch has a seat until its initial events are sent."""
        record.streamed = True
        gauge = self._context.metrics.long_running.labels(record.verb.upper())
        with gauge.track_inprogress():
            if target.subresource == "log":
                return await self._context.logs.answer(request, target, self._context.store)
            async with contextlib.AsyncExitStack() as stack:
                seats = lists.seats(request, self._context.store, target)
                await stack.enter_async_context(self._flow_control.seat(flow, seats))
                return await self._context.resources.watch(request, target, stack.aclose)

    async def _limited(
        self, request: web.BaseRequest, target: RequestTarget, verb: str, user: User, flow: Flow
    ) -> web.StreamResponse:
        """Answer a request when its body has arrived and a seat is free. Raises ApiError 429."""
        async with self._bodies.received(request, flow) as size:
            seats = 1 + size // SEAT_BYTES
            if verb in ("list", "deletecollection"):
                seats = lists.seats(request, self._context.store, target)
            async with self._flow_control.seat(flow, seats):
                if verb in ("get", "list"):
                    return await self._read(request, target, verb, user)
                self._writing += 1
                try:
                    async with asyncio.timeout(REQUEST_SECONDS):
                        response = await self._warned(request, target, verb, user)
                        return await responses.in_requested_type(request, response)
                finally:
                    self._writing -= 1

    async def _read(
        self, request: web.BaseRequest, target: RequestTarget, verb: str, user: User
    ) -> web.StreamResponse:
        """Answer a read. Served from memory; otherwise the storage has its own timeout."""
        self._reading += 1
        try:
            response = await self._warned(request, target, verb, user)
            return await responses.send_in_pieces(request, response)
        finally:
            self._reading -= 1

    async def _warned(
        self, request: web.BaseRequest, target: RequestTarget, verb: str, user: User
    ) -> web.StreamResponse:
        """Answer a request, with a warning if its version is deprecated."""
        response = await self._resource(request, target, verb, user)
        if target.requested.warning:
            responses.add_warning(response, target.requested.warning)
        return response

    async def _resource(
        self, request: web.BaseRequest, target: RequestTarget, verb: str, user: User
    ) -> web.StreamResponse:
        served, sub, resources = target.served, target.subresource, self._context.resources
        if not served.persisted:
            if verb != "create" or target.name:
                raise requests.not_allowed(request)
            negotiation.media_type(request)
            body = await requests.body(request)
            review = self._reviews.answer(served, body, user, target.namespace)
            return responses.unstored(request, review, 201)
        if sub:
            return await self._subresource(request, target, verb, user)
        match verb:
            case "get" | "list":
                return await resources.read(request, target, verb)
            case "create" if not target.name:
                return await resources.create(request, target, user)
            case "update" if target.name:
                return await resources.update(request, target, user)
            case "patch" if target.name:
                return await self._patch(request, target, user)
            case "delete":
                return await resources.delete(request, target, user)
            case "deletecollection" if verb in served.verbs:
                return await resources.delete_collection(request, target, user)
        raise requests.not_allowed(request)

    async def _patch(
        self, request: web.BaseRequest, target: RequestTarget, user: User
    ) -> web.Response:
        def may_create() -> None:
            requested = attributes("create", target)
            if not self._context.authorizer.authorize(user, requested)[0]:
                raise _forbidden(user, requested)

        return await self._context.resources.patch(request, target, user, may_create=may_create)

    async def _subresource(
        self, request: web.BaseRequest, target: RequestTarget, verb: str, user: User
    ) -> web.StreamResponse:
        served, context = target.served, self._context
        name = served.resource.plural if not served.resource.group else ""
        match target.subresource:
            case "status" if served.status and verb in ("get", "update", "patch"):
                return await self._part(request, target, verb, user)
            case "approval" if served.resource.plural == "certificatesigningrequests":
                return await self._part(request, target, verb, user)
            case "scale" if served.scale:
                return await scale.answer(request, target, verb, user, context.store, context.verbs)
            case "finalize" if name == "namespaces" and verb == "update":
                return await context.resources.update(request, target, user)
            case "token" if name == "serviceaccounts" and verb == "create":
                return await self._token(request, target)
            case "eviction" if name == "pods":
                if verb != "create":
                    raise requests.not_allowed(request)
                return await context.evictions.answer(request, target, user)
        resource = target.requested.resource
        if served.builtin:
            raise _not_found()
        raise _not_found(resource.group, resource.plural, target.name)

    async def _part(
        self, request: web.BaseRequest, target: RequestTarget, verb: str, user: User
    ) -> web.StreamResponse:
        """Answer a request for the status of an object, or for a part of it."""
        match verb:
            case "get":
                return await self._context.resources.read(request, target, verb)
            case "update":
                return await self._context.resources.update(request, target, user)
            case "patch":
                return await self._patch(request, target, user)
        raise requests.not_allowed(request)

    async def _token(self, request: web.BaseRequest, target: RequestTarget) -> web.Response:
        entry = self._context.store.get(target.key)
        if entry is None:
            raise errors.not_found_error("serviceaccounts", "", target.name)
        body = await requests.body(request)
        requested = token_request(body, entry.value, self._context.tokens)
        return responses.unstored(request, requested, 201)


def _failure(request: web.BaseRequest, error: Exception) -> StatusError:
    """Return the failure with which an exception is answered."""
    match error:
        case StatusError():
            return error
        case TimeoutError():
            message = "the request did not complete within the allotted time"
            return StatusError(504, "Timeout", message)
        case StorageFullError():
            return errors.storage_full(str(error))
        case UnavailableError():
            return errors.unavailable_error(f"storage: {error}")
        case MismatchError():
            return errors.conflict("objects", "", str(error))
        case ConnectionError() | web.RequestPayloadError():
            # The client closed the connection within the body, or sent malformed chunks. A
            # traceback for each would cost more than the request.
            return errors.bad_request(f"incomplete body: {error}")
    log.exception("request failed", method=request.method, path=request.path)
    message = "Internal error occurred; see the server's log"
    return StatusError(500, "InternalError", message)


def attributes(verb: str, target: RequestTarget) -> Attributes:
    """Return the attributes by which RBAC authorizes a request."""
    resource = target.requested.resource
    return Attributes(
        verb,
        resource.group,
        resource.plural,
        target.subresource,
        target.namespace,
        target.name,
    )


def _not_found(group: str = "", plural: str = "", name: str = "") -> StatusError:
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, kind=plural, group=group, name=name)


def _forbidden(user: User, requested: Attributes, reason: str = "") -> StatusError:
    resource = f"{requested.resource}/{requested.subresource}".rstrip("/")
    scope = (
        f'in the namespace "{requested.namespace}"'
        if requested.namespace
        else "at the cluster scope"
    )
    why = (
        f'User "{user.name}" cannot {requested.verb} resource "{resource}" in API group '
        f'"{requested.group}" {scope}'
    )
    if reason:
        why = f"{why}: {reason}"
    return errors.forbidden_error(requested.resource, requested.group, requested.name, why)
