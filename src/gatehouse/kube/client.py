"""Client of one API server: Kubernetes verbs with plain dicts for objects."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import msgspec

from gatehouse.apis.resources import PODS, SERVICE_ACCOUNTS, TOKEN_REVIEWS
from gatehouse.kube import config, paths, pod_exec, token_review
from gatehouse.kube.config import Configuration
from gatehouse.kube.connection import API_CONNECT_TIMEOUT_SECONDS, Connection, unreachable
from gatehouse.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NamespaceTerminating,
    NotFound,
    Unauthorized,
    Unavailable,
)
from gatehouse.kube.pod_exec import CommandResult
from gatehouse.kube.token_review import TokenReviewStatus
from gatehouse.kube.watch_decoder import MALFORMED_EVENT, WatchEvent, decoded_batches
from kube_base.types.objects import Object
from kube_base.types.resource import Resource

__all__ = [
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "Client",
    "Conflict",
    "Forbidden",
    "Gone",
    "Invalid",
    "ListResult",
    "NamespaceTerminating",
    "NotFound",
    "Object",
    "TokenReviewStatus",
    "Unauthorized",
    "Unavailable",
    "WatchEvent",
]

T = TypeVar("T")


WATCH_SLACK = 30.0
"""Seconds beyond a watch's own timeout after which a silent connection counts as dead."""

_AS = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_LIST_ACCEPT = {False: "application/json", True: _AS.format("List")}
_WATCH_ACCEPT = {False: "application/json", True: _AS.format("")}
"""``Accept`` headers by ``metadata_only``. A watch that also accepts lists ends at its first event:
kube-apiserver uses the first type of the header, whatever the object is."""

_MERGE_PATCH = "application/merge-patch+json"


class ListResult(msgspec.Struct, frozen=True):
    """Objects of a collection at one resource version."""

    items: list[Object]
    resource_version: str
    """A watch from this version gets every later change and none that is in ``items``."""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _ListBody(msgspec.Struct):
    items: list[Object] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _IssuedStatus(msgspec.Struct, rename="camel"):
    token: str
    expiration_timestamp: datetime


class _Issued(msgspec.Struct):
    status: _IssuedStatus


class Client:
    """Client with a connection pool to one API server. Use it with ``async with``.

    Safe for concurrent tasks. Methods raise only :class:`ApiError` and its subclasses.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._connection = Connection(configuration)

    @classmethod
    def from_kubeconfig(cls, path: Path | str, context: str = "") -> Client:
        """Use the current or the given context of a file. Raises config.ConfigError."""
        return cls(config.from_kubeconfig(path, context))

    @classmethod
    def from_environment(cls) -> Client:
        """Use KUBECONFIG, the Pod's ServiceAccount or ~/.kube/config, in this order."""
        return cls(config.from_environment())

    @property
    def server(self) -> str:
        """Return the URL of the API server."""
        return self._connection.server

    async def __aenter__(self) -> Self:
        self._connection.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._connection.close()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """Read one object. Raises NotFound if it does not exist."""
        return await self._object("GET", paths.object_path(resource, namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        metadata_only: bool = False,
    ) -> ListResult:
        """Read a collection (of all namespaces for None), ``limit`` objects per request.

        If the server compacts the revision of the first page before the last is read, everything is
        read again without pages. So the result always belongs to one revision.
        """
        query = paths.selectors(label_selector, field_selector)
        path = paths.collection(resource, namespace)
        try:
            return await self._pages(resource, path, query, limit, _LIST_ACCEPT[metadata_only])
        except Gone:
            return await self._pages(resource, path, query, 0, _LIST_ACCEPT[metadata_only])

    async def _pages(
        self, resource: Resource, path: str, query: Mapping[str, str], limit: int, accept: str
    ) -> ListResult:
        items: Sequence[Object] = ()
        token: str | None = None
        while token != "":
            page = {**query, **({"limit": str(limit)} if limit else {})}
            if token:
                page["continue"] = token
            response = await self._connection.request("GET", path, query=page, accept=accept)
            body = _decode(response, _ListBody)
            items = [*items, *(body.items or ())]
            token = body.metadata.continue_
        for item in items:
            # Lists of built-in kinds contain apiVersion and kind only on the list.
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
        return ListResult([*items], body.metadata.resource_version)

    async def create(self, resource: Resource, obj: Mapping[str, Any]) -> Object:
        """Create an object in its own namespace. Raises AlreadyExists."""
        namespace = obj.get("metadata", {}).get("namespace", "")
        body = {**resource.type_meta, **obj}
        return await self._object("POST", paths.collection(resource, namespace), body=body)

    async def update(self, resource: Resource, obj: Mapping[str, Any]) -> Object:
        """Replace an object. Raises Conflict if its resourceVersion is set and not the newest."""
        body = {**resource.type_meta, **obj}
        return await self._object("PUT", paths.path_of_object(resource, obj), body=body)

    async def update_status(self, resource: Resource, obj: Mapping[str, Any]) -> Object:
        """Replace only the status of an object."""
        body = {**resource.type_meta, **obj}
        return await self._object("PUT", paths.path_of_object(resource, obj, "status"), body=body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        subresource: str = "",
        content_type: str = _MERGE_PATCH,
    ) -> Object:
        """Patch an object, with a JSON merge patch unless ``content_type`` is another type."""
        path = paths.object_path(resource, namespace, name, subresource)
        return await self._object("PATCH", path, body=patch, content_type=content_type)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        propagation: str = "Background",
        grace: int | None = None,
    ) -> None:
        """Delete an object. Raises Conflict if ``uid`` is given and not the UID of the object.

        ``grace``: grace period in seconds, None for the default. 0 deletes a Pod immediately; use
        it only if its processes have ended.
        """
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        options["propagationPolicy"] = propagation
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid:
            options["preconditions"] = {"uid": uid}
        await self._connection.request(
            "DELETE", paths.object_path(resource, namespace, name), body=options
        )

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        timeout_seconds: int | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield every change after ``resource_version``, and bookmarks, until the server closes.

        An ERROR event is raised as the error it contains (Gone: relist). Close the iterator
        (``contextlib.aclosing``) to stop early.
        """
        batches = self.watch_batches(
            resource,
            namespace,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            label_selector=label_selector,
            field_selector=field_selector,
        )
        async with aclosing(batches) as stream:
            async for batch in stream:
                for event in batch:
                    yield event

    async def watch_batches(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        timeout_seconds: int | None = None,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> AsyncGenerator[tuple[WatchEvent, ...], None]:
        """Like :meth:`watch`, but yield events in batches as received, at least one in each."""
        # Random, so that clients that connected together do not reconnect together.
        timeout = timeout_seconds or random.randint(300, 600)  # noqa: S311 (not for secrets)
        query = paths.selectors(label_selector, field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout),
        }
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=API_CONNECT_TIMEOUT_SECONDS, sock_read=timeout + WATCH_SLACK
        )
        path = paths.collection(resource, namespace)
        response = await self._connection.open(
            "GET", path, query=query, timeout=limits, accept=_WATCH_ACCEPT[metadata_only]
        )
        try:
            async with aclosing(decoded_batches(response.content)) as batches:
                async for batch in batches:
                    yield batch
        except msgspec.MsgspecError as error:
            raise Unavailable(0, "MalformedEvent", f"{path}: {MALFORMED_EVENT}: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(self.server, error) from error
        finally:
            response.close()

    async def create_token(
        self,
        namespace: str,
        service_account: str,
        audiences: Sequence[str],
        expiration_seconds: int = 3600,
        pod_name: str = "",
        pod_uid: str = "",
    ) -> tuple[str, datetime]:
        """Issue a ServiceAccount token, bound to a Pod if given. Return it and its expiry."""
        spec: Object = {"audiences": [*audiences], "expirationSeconds": expiration_seconds}
        if pod_name:
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod_name,
                "uid": pod_uid,
            }
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = paths.object_path(SERVICE_ACCOUNTS, namespace, service_account, "token")
        issued = _decode(await self._connection.request("POST", path, body=body), _Issued).status
        return issued.token, issued.expiration_timestamp

    async def review_token(self, token: str, audiences: Sequence[str]) -> TokenReviewStatus:
        """Review a token. It is authenticated only if it is for one of ``audiences``."""
        body = token_review.review_request(token, audiences)
        response = await self._connection.request(
            "POST", paths.collection(TOKEN_REVIEWS, None), body=body
        )
        return token_review.review_status(_decode(response, token_review.Review), audiences)

    async def server_version(self) -> Object:
        """Return the version of the API server, such as ``gitVersion``."""
        return await self._object("GET", "/version")

    async def get_from_pod(self, namespace: str, name: str, port: str, path: str) -> str:
        """Return a page of a Pod's HTTP server, which the API server reads (``pods/proxy``)."""
        page = paths.object_path(PODS, namespace, f"{name}:{port}", f"proxy/{path}")
        return (await self._connection.request("GET", page, accept="*/*")).decode(
            "utf-8", "replace"
        )

    async def pod_log(
        self, namespace: str, name: str, container: str, seconds: int, lines: int
    ) -> str:
        """Return the last lines of a container's log (``pods/log``), of the last seconds only."""
        query = {"container": container, "sinceSeconds": str(seconds), "tailLines": str(lines)}
        path = paths.object_path(PODS, namespace, name, "log")
        return (await self._connection.request("GET", path, query=query, accept="*/*")).decode(
            "utf-8", "replace"
        )

    async def exec_in_pod(
        self, namespace: str, name: str, container: str, command: Sequence[str]
    ) -> CommandResult:
        """Run a command in a container (``pods/exec``). Raises ApiError if it does not run."""
        path = paths.object_path(PODS, namespace, name, "exec")
        return await pod_exec.run_in_container(self._connection, path, container, command)

    async def _object(
        self, method: str, path: str, *, body: Any = None, content_type: str = "application/json"
    ) -> Object:
        data = await self._connection.request(method, path, body=body, content_type=content_type)
        return _decode(data, Object)


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise Unavailable(
            0, "MalformedAnswer", f"invalid response of the API server: {error}"
        ) from error
