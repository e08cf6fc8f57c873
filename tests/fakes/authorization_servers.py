"""Authorization servers for ExternalAuth filters, by HTTP and by gRPC, that record each check.

The query of a request decides the answer: ``status=401`` is the status (200 without), ``user=`` the
value of X-User (alice without; none if empty), ``late`` delays the answer for longer than a check
may take.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc
import msgspec
from envoy.service.auth.v3 import external_auth_pb2

from fakes.durations import be_slow
from fakes.envoy_serving import listening

LATE = 60.0
"""Seconds of a delay."""


class Check(msgspec.Struct):
    """A request to an authorization server."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def all(self, name: str) -> list[str]:
        """Return the values of a header."""
        return [value for header, value in self.headers if header == name]


class AuthorizationServer:
    """Requests that an authorization server received, and its address."""

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.port = 0

    def last(self) -> Check:
        """Return the newest check, and forget all."""
        check = self.checks[-1]
        self.checks.clear()
        return check

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the checks of a connection."""
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *rest = head.split("\r\n")[:-2]
            headers = [
                (name.lower(), value.strip())
                for name, _, value in (line.partition(":") for line in rest)
            ]
            body = await reader.readexactly(int(dict(headers).get("content-length", "0")))
            method, target = first.split(" ")[:2]
            self.checks.append(Check(method, target, headers, body))
            verdict = await _asked(target)
            text = b"" if verdict.status in (204, 304) or method == "HEAD" else b"from the server"
            lines = [
                f"HTTP/1.1 {verdict.status} X", *(f"X-User: {user}" for user in verdict.users),
                "X-Extra: extra", "Location: https://login.example/", "Set-Cookie: denied=1",
                "WWW-Authenticate: Bearer realm=x", "X-Internal: secret", "Date: then",
                "Content-Type: text/plain", f"Content-Length: {len(text)}",
            ]  # fmt: skip
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + text)
            await writer.drain()

    async def check(self, request: external_auth_pb2.CheckRequest, _: Any) -> Any:
        """Answer a check by gRPC."""
        attributes = request.attributes.request.http
        fields = [*sorted(attributes.headers.items())]
        self.checks.append(Check(attributes.method, attributes.path, fields, attributes.raw_body))
        verdict = await _asked(attributes.path)
        response = external_auth_pb2.CheckResponse()
        if verdict.status == 200:
            for name, value in (("x-extra", "extra"), *(("x-user", user) for user in verdict.users),
                                ("host", "elsewhere.example"), ("x-gh-scope", "forged"),
                                ("transfer-encoding", "chunked")):  # fmt: skip
                option = response.ok_response.headers.add()
                option.header.key, option.header.value = name, value
            return response
        response.status.code = 7
        response.denied_response.status.code = verdict.status  # type: ignore[assignment]
        response.denied_response.body = "from the server"
        return response


class _Asked(msgspec.Struct):
    status: int
    users: list[str]


async def _asked(target: str) -> _Asked:
    query = parse_qs(urlsplit(target).query, keep_blank_values=True)
    if "late" in query:
        await be_slow(LATE)
    users = [user for user in query.get("user", ["alice"]) if user]
    return _Asked(int(query.get("status", ["200"])[0]), users)


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, server: AuthorizationServer) -> None:
        self._server = server

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a call."""
        if details.method != "/envoy.service.auth.v3.Authorization/Check":
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._server.check,
            external_auth_pb2.CheckRequest.FromString,
            external_auth_pb2.CheckResponse.SerializeToString,
        )


@contextlib.asynccontextmanager
async def http_server() -> AsyncIterator[AuthorizationServer]:
    """Run a server that speaks HTTP."""
    result = AuthorizationServer()
    async with listening(result.http) as endpoint:
        result.port = endpoint.port
        yield result


@contextlib.asynccontextmanager
async def grpc_server() -> AsyncIterator[AuthorizationServer]:
    """Run a server that speaks ``envoy.service.auth.v3``."""
    result = AuthorizationServer()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Handler(result),))
    result.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield result
    finally:
        await server.stop(0)
