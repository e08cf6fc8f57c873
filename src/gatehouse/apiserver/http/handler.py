"""Request handler: authentication, authorization, limits, dispatch, metrics and audit."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import msgspec
import structlog
from aiohttp import web

from gatehouse.apis.request_info import RequestInfo
from gatehouse.apiserver import errors
from gatehouse.apiserver.errors import ApiError
from gatehouse.apiserver.http import requests, responses, scale
from gatehouse.apiserver.http.audit import Audit
from gatehouse.apiserver.http.metrics import Metrics
from gatehouse.apiserver.http.nonresource import NonResourceHandlers
from gatehouse.apiserver.http.pod_logs import PodLogs
from gatehouse.apiserver.http.requests import Target
from gatehouse.apiserver.http.resources import Resources
from gatehouse.apiserver.http.reviews import Reviews, token_request
from gatehouse.apiserver.identity.authentication import (
    Authenticator,
    impersonated,
    impersonation_needs,
)
from gatehouse.apiserver.identity.service_account_tokens import ServiceAccountTokens
from gatehouse.apiserver.identity.users import ADMINS, User
from gatehouse.apiserver.objects.registry import Registry
from gatehouse.apiserver.objects.verbs import Verbs
from gatehouse.apiserver.rbac.authorizer import Authorizer
from gatehouse.apiserver.rbac.rules import Attributes
from gatehouse.apiserver.storage.entries import MismatchError, UnavailableError
from gatehouse.apiserver.storage.store import Store

log = structlog.get_logger("gatehouse.apiserver")

REQUEST_SECONDS = 60.0
"""Timeout in seconds of a write."""


class Limits(msgspec.Struct, frozen=True):
    """Maximum number of concurrent reads and writes. Requests beyond it are answered with 429."""

    reading: int = 400
    writing: int = 200


class RequestRecord:
    """Facts about a request, collected for metrics and the audit log."""

    def __init__(self) -> None:
        self.verb = ""
        self.user: User | None = None
        self.acting: User | None = None
        self.target: Target | None = None
        self.reason = ""
        self.streamed = False


class ServerContext(msgspec.Struct, frozen=True):
    """Components that the handler uses."""

    store: Store
    registry: Registry
    verbs: Verbs
    resources: Resources
    authenticator: Authenticator
    authorizer: Authorizer
    tokens: ServiceAccountTokens
    nonresource: NonResourceHandlers
    metrics: Metrics
    logs: PodLogs
    audit: Audit | None = None
    limits: Limits = Limits()


class Handler:
    """Handler of all requests."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._reviews = Reviews(context.authenticator, context.authorizer)
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
        except ApiError as error:
            code = error.code
            response = responses.error_response(error)
        except TimeoutError:
            code = 504
            message = "the request did not complete within the allotted time"
            response = responses.error_response(ApiError(504, "Timeout", message))
        except UnavailableError as error:
            code = 503
            response = responses.error_response(errors.unavailable(f"storage: {error}"))
        except MismatchError as error:
            code = 409
            response = responses.error_response(errors.conflict("objects", "", str(error)))
        except (web.HTTPException, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("request failed", method=request.method, path=request.path)
            message = "Internal error occurred; see the server's log"
            response = responses.error_response(ApiError(500, "InternalError", message))
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
        path = info.path.rstrip("/") or "/"
        if self._context.nonresource.is_open(path):
            return await self._context.nonresource.health(request, path)
        user = record.user = self._context.authenticator.authenticate(request)
        user = record.acting = self._impersonated_user(request, user)
        if not info.is_resource:
            return await self._nonresource(request, path, user)
        record.verb = info.verb or record.verb
        target = record.target = requests.target(self._context.registry, info)
        self._authorize(user, info, record)
        if target is None:
            raise _not_found()
        if not info.verb:
            raise requests.not_allowed(request)
        if record.verb == "watch" or target.subresource == "log":
            return await self._stream(request, target, record)
        return await self._limited(request, target, record.verb, user)

    async def _nonresource(
        self, request: web.BaseRequest, path: str, user: User
    ) -> web.StreamResponse:
        requested = Attributes(request.method.lower(), path=path)
        if not self._context.authorizer.authorize(user, requested)[0]:
            message = f'forbidden: User "{user.name}" cannot {requested.verb} path "{path}"'
            raise ApiError(403, "Forbidden", message)
        response = self._context.nonresource.find(request, path)
        if response is None:
            raise _not_found()
        return response

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
        self, request: web.BaseRequest, target: Target, record: RequestRecord
    ) -> web.StreamResponse:
        record.streamed = True
        gauge = self._context.metrics.long_running.labels(record.verb.upper())
        gauge.inc()
        try:
            if target.subresource == "log":
                return await self._context.logs.answer(request, target, self._context.store)
            return await self._context.resources.read(request, target, record.verb)
        finally:
            gauge.dec()

    async def _limited(
        self, request: web.BaseRequest, target: Target, verb: str, user: User
    ) -> web.StreamResponse:
        """Answer a request, or raise ApiError 429 if too many requests are in flight."""
        reading = verb in ("get", "list")
        limits, exempt = self._context.limits, ADMINS in user.groups
        busy = self._reading >= limits.reading if reading else self._writing >= limits.writing
        if busy and not exempt:
            self._context.metrics.rejected.labels("429").inc()
            error = ApiError(429, "TooManyRequests", "Too many requests, please try again later.")
            error.retry_after = 1
            raise error
        if reading:
            self._reading += 1
        else:
            self._writing += 1
        try:
            if reading:
                # Served from memory; otherwise the storage has its own timeout.
                return await self._resource(request, target, verb, user)
            async with asyncio.timeout(REQUEST_SECONDS):
                return await self._resource(request, target, verb, user)
        finally:
            if reading:
                self._reading -= 1
            else:
                self._writing -= 1

    async def _resource(
        self, request: web.BaseRequest, target: Target, verb: str, user: User
    ) -> web.StreamResponse:
        served, sub, resources = target.served, target.subresource, self._context.resources
        if not served.persisted:
            if verb != "create" or target.name:
                raise requests.not_allowed(request)
            body = await requests.body(request)
            return responses.json(self._reviews.answer(served, body, user, target.namespace), 201)
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
            case "deletecollection":
                return await resources.delete_collection(request, target, user)
        raise requests.not_allowed(request)

    async def _patch(self, request: web.BaseRequest, target: Target, user: User) -> web.Response:
        def may_create() -> None:
            requested = attributes("create", target)
            if not self._context.authorizer.authorize(user, requested)[0]:
                raise _forbidden(user, requested)

        return await self._context.resources.patch(request, target, user, may_create=may_create)

    async def _subresource(
        self, request: web.BaseRequest, target: Target, verb: str, user: User
    ) -> web.StreamResponse:
        served, context = target.served, self._context
        name = served.resource.plural if not served.resource.group else ""
        match target.subresource:
            case "status" if served.status and verb in ("get", "update", "patch"):
                if verb == "get":
                    return await context.resources.read(request, target, verb)
                if verb == "update":
                    return await context.resources.update(request, target, user)
                return await self._patch(request, target, user)
            case "scale" if served.scale:
                return await scale.answer(request, target, verb, user, context.store, context.verbs)
            case "finalize" if name == "namespaces" and verb == "update":
                return await context.resources.update(request, target, user)
            case "token" if name == "serviceaccounts" and verb == "create":
                return await self._token(request, target)
        raise _not_found()

    async def _token(self, request: web.BaseRequest, target: Target) -> web.Response:
        entry = self._context.store.get(target.key)
        if entry is None:
            raise errors.not_found("serviceaccounts", "", target.name)
        body = await requests.body(request)
        return responses.json(token_request(body, entry.value, self._context.tokens), 201)


def attributes(verb: str, target: Target) -> Attributes:
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


def _not_found() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def _forbidden(user: User, requested: Attributes, reason: str = "") -> ApiError:
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
    return errors.forbidden(requested.resource, requested.group, requested.name, why)
