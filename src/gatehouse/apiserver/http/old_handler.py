"""Requests in, responses out."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import structlog
from aiohttp import web

import gatehouse
from gatehouse.apis import resources
from gatehouse.apiserver import (
    discovery,
    errors,
    housekeeping,
    lists,
    openapi,
    patches,
    requests,
    reviews,
)
from gatehouse.apiserver.authentication import User, authenticate
from gatehouse.apiserver.authorization import Attributes, authorize
from gatehouse.apiserver.errors import ApiError
from gatehouse.apiserver.requests import Target
from gatehouse.apiserver.storage.store import Entry, MismatchError, Store
from gatehouse.apiserver.tokens import API_AUDIENCE, Tokens
from gatehouse.apiserver.verbs import Options, Verbs, Written

log = structlog.get_logger("gatehouse.apiserver")

Object = dict[str, Any]

OPEN = ("/livez", "/readyz", "/healthz", "/version")
"""Paths that anybody may read."""

_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"


class Api:
    """The handler of every request."""

    def __init__(self, store: Store, verbs: Verbs, tokens: Tokens, stop: asyncio.Event) -> None:
        self._store, self._verbs, self._tokens, self._stop = store, verbs, tokens, stop
        self._encoded = lists.Encoded()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request; failures become Status objects."""
        try:
            return await self._answer(request)
        except ApiError as error:
            return _json(error.status(), error.code)
        except MismatchError as error:
            failure = errors.conflict("objects", "", str(error))
            return _json(failure.status(), failure.code)
        except web.HTTPException:
            raise
        except Exception:
            log.exception("request failed", method=request.method, path=request.path)
            failure = ApiError(500, "InternalError", "Internal error occurred; see the log")
            return _json(failure.status(), 500)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        if path in OPEN:
            return _open(request, path)
        user = authenticate(request, self._check_token)
        target = requests.target(path)
        if target is not None:
            return await self._resource(request, target, user)
        found = _document(request, path)
        if found is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return found

    def _check_token(self, token: str) -> User | str:
        found = self._tokens.check(token, [API_AUDIENCE])
        return found if isinstance(found, str) else found[0]

    async def _resource(
        self, request: web.Request, target: Target, user: User
    ) -> web.StreamResponse:
        verb = _verb(request, target)
        resource = target.served.resource
        plural = f"{resource.plural}/{target.subresource}".rstrip("/")
        authorize(user, Attributes(verb, resource.group, plural, target.namespace, target.name))
        created_only = not target.served.stored or target.subresource == "token"
        if verb == "create" and target.name and not target.subresource:
            raise _not_allowed(request)
        if created_only and verb != "create":
            raise _not_allowed(request)
        if not target.served.stored:
            return await self._review(request, target, user)
        if target.subresource == "token" and resource is resources.SERVICE_ACCOUNTS:
            return await self._token(request, target)
        if target.subresource and not (target.subresource == "status" and target.served.status):
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        match verb:
            case "list":
                return _bytes(lists.list_objects(request, self._store, target))
            case "watch":
                return await lists.watch_objects(
                    request, self._store, target, self._encoded, self._stop
                )
            case "get":
                return self._get(request, target)
            case "create":
                return await self._create(request, target)
            case "update" | "patch":
                return await self._change(request, target, verb)
            case "delete":
                return await self._delete(request, target)
        return await self._delete_collection(request, target)

    def _get(self, request: web.Request, target: Target) -> web.Response:
        resource = target.served.resource
        entry = self._store.get(target.served.key(target.namespace, target.name))
        if entry is None:
            raise errors.not_found(resource.plural, resource.group, target.name)
        return _bytes(lists.form_of(request, target).encode(entry))

    async def _create(self, request: web.Request, target: Target) -> web.Response:
        body = await requests.body(request)
        _kind_matches(body, target)
        _no_duplicates(request, await request.read())
        namespace = target.namespace
        written = await self._verbs.create(target.served, namespace, body, _options(request))
        return self._written(written, 201)

    async def _change(self, request: web.Request, target: Target, verb: str) -> web.Response:
        body = await requests.body(request)
        if verb == "update":
            _kind_matches(body, target)
            _no_duplicates(request, await request.read())
            if not target.name:
                raise errors.bad_request("the name of the object is missing")

        def change(current: Object) -> Object:
            if verb == "update":
                return body if isinstance(body, dict) else {}
            patched = patches.apply(request.content_type, current, body)
            if not isinstance(patched, dict):
                raise errors.bad_request("the patch leaves no object")
            return patched

        written = await self._verbs.change(
            target.served,
            target.namespace,
            target.name,
            change,
            _options(request),
            target.subresource,
        )
        return self._written(written, 200)

    async def _delete(self, request: web.Request, target: Target) -> web.Response:
        options = await _delete_options(request)
        resource = target.served.resource
        entry, gone = await self._delete_one(target, target.namespace, target.name, options)
        if not gone:
            return _bytes(entry.data)
        details = {
            "name": target.name,
            "kind": resource.plural,
            "uid": entry.value["metadata"]["uid"],
            **({"group": resource.group} if resource.group else {}),
        }
        return _json({**_SUCCESS, "details": details})

    async def _delete_collection(self, request: web.Request, target: Target) -> web.Response:
        options = await _delete_options(request)
        chosen = lists.selection(request)
        for _, entry in list(self._store.list(lists.prefix_of(target))):
            if chosen(entry.value):
                metadata = entry.value["metadata"]
                namespace = metadata.get("namespace", "")
                await self._delete_one(target, namespace, metadata["name"], options)
        return _json(_SUCCESS)

    async def _delete_one(
        self, target: Target, namespace: str, name: str, options: Object
    ) -> tuple[Entry, bool]:
        entry, gone = await self._verbs.delete(target.served, namespace, name, options)
        if gone or target.served.resource is not resources.NAMESPACES:
            return entry, gone
        # Marked as terminating: nothing new comes into it while it is emptied.
        last = await housekeeping.empty_namespace(self._store, self._verbs, name)
        return (last, True) if last is not None else (entry, False)

    async def _review(self, request: web.Request, target: Target, user: User) -> web.Response:
        body = await requests.body(request)
        if not isinstance(body, dict) or not isinstance(body.get("spec", {}), dict):
            raise errors.bad_request("the body must be an object with an object as spec")
        if target.served.resource is resources.TOKEN_REVIEWS:
            return _json(reviews.token_review(body, self._tokens), 201)
        return _json(reviews.self_subject_review(body, user), 201)

    async def _token(self, request: web.Request, target: Target) -> web.Response:
        entry = self._store.get(target.served.key(target.namespace, target.name))
        if entry is None:
            raise errors.not_found("serviceaccounts", "", target.name)
        body = await requests.body(request)
        if not isinstance(body, dict) or not isinstance(body.get("spec", {}), dict):
            raise errors.bad_request("the body must be an object with an object as spec")
        return _json(reviews.token_request(body, entry.value, self._tokens), 201)

    @staticmethod
    def _written(written: Written, code: int) -> web.Response:
        response = _bytes(written.data, code)
        for warning in written.warnings:
            response.headers.add(
                "Warning", f'299 - "{warning.replace(chr(34), chr(92) + chr(34))}"'
            )
        return response


async def _delete_options(request: web.Request) -> Object:
    body = await requests.body(request)
    if not isinstance(body, dict):
        raise errors.bad_request("DeleteOptions must be an object")
    return {**body, "dryRun": ["All"]} if request.query.get("dryRun") else body


def _verb(request: web.Request, target: Target) -> str:
    match request.method:
        case "GET" | "HEAD":
            if target.name:
                return "get"
            return "watch" if requests.flag(request, "watch") else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "patch"
        case "DELETE":
            return "delete" if target.name else "deletecollection"
    raise _not_allowed(request)


def _not_allowed(request: web.Request) -> ApiError:
    message = f"{request.method} is not supported on {request.path}"
    return ApiError(405, "MethodNotAllowed", message)


def _options(request: web.Request) -> Options:
    validation = request.query.get("fieldValidation", "Warn")
    if validation not in ("Strict", "Warn", "Ignore"):
        raise errors.bad_request(f"fieldValidation: Invalid value: {validation!r}")
    dry_run = request.query.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise errors.bad_request(f"dryRun: Invalid value: {dry_run!r}")
    return Options(
        strict=validation == "Strict", silent=validation == "Ignore", dry_run=bool(dry_run)
    )


def _kind_matches(body: Any, target: Target) -> None:
    if not isinstance(body, dict):
        raise errors.bad_request("the object provided is no JSON object")
    resource = target.served.resource
    kind, version = body.get("kind"), body.get("apiVersion")
    group = f"{resource.group}/" if resource.group else ""
    expected = [f"{group}{known}" for known in target.served.versions]
    if kind not in (None, resource.kind) or version not in (None, *expected):
        message = (
            f"{kind} of {version} does not match the resource of the URL, {resource.kind} of "
            f"{resource.api_version}"
        )
        raise errors.bad_request(message)


def _no_duplicates(request: web.Request, data: bytes) -> None:
    if request.query.get("fieldValidation") == "Strict" and data[:1] == b"{":
        found = requests.duplicates(data)
        if found:
            shown = ", ".join(f'duplicate field "{name}"' for name in found)
            raise errors.bad_request(f"strict decoding error: {shown}")


def _open(request: web.Request, path: str) -> web.Response:
    if path == "/version":
        version = {
            "major": "1",
            "minor": "33",
            "gitVersion": f"v1.33.0+gatehouse.{gatehouse.__version__}",
            "platform": "linux/amd64",
        }
        return _json(version)
    text = "[+]ping ok\n[+]log ok\n" if "verbose" in request.query else "ok"
    return web.Response(text=text)


def _document(request: web.Request, path: str) -> web.Response | None:
    """Answer discovery and OpenAPI."""
    accepted = request.headers.get("Accept", "")
    if path in ("/api", "/apis"):
        for version in ("v2", "v2beta1"):
            if f"g=apidiscovery.k8s.io;v={version};" in accepted.replace(" ", ""):
                found = discovery.aggregated(version, core=path == "/api")
                return _json(found, content_type=AGGREGATED.format(version=version))
        return _json(
            discovery.core_versions(request.host) if path == "/api" else discovery.group_list()
        )
    parts = path.strip("/").split("/")
    found_document: Object | None = None
    match parts:
        case ["api", version]:
            found_document = discovery.resource_list("", version)
        case ["apis", group]:
            found_document = discovery.group(group)
        case ["apis", group, version]:
            found_document = discovery.resource_list(group, version)
        case ["openapi", "v3"]:
            found_document = openapi.index()
        case ["openapi", "v3", *rest]:
            found_document = openapi.document("/".join(rest))
    return None if found_document is None else _json(found_document)


def _json(value: Any, code: int = 200, content_type: str = "application/json") -> web.Response:
    return _bytes(msgspec.json.encode(value), code, content_type)


def _bytes(data: bytes, code: int = 200, content_type: str = "application/json") -> web.Response:
    return web.Response(body=data, status=code, headers={"Content-Type": content_type})
