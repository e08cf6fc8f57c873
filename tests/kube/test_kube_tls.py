"""Both sides prove who they are, and a server that cannot is not talked to."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fakes.kube_test_pki import Authority
from gatehouse.apis.resources import NAMESPACES
from gatehouse.kube import client as kube
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken
from kube_base.types.objects import Object


@asynccontextmanager
async def tls_server(authority: Authority, directory: Path, host: str) -> AsyncIterator[str]:
    """Run a server that demands a client certificate and answers with whose it was."""
    cert, key = authority.issue("server", host=host)
    (directory / "pair.pem").write_bytes(cert + key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pem.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(directory / "pair.pem")

    async def who(request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = request.transport.get_extra_info("peercert")["subject"]
        return web.json_response({"subject": {key: value for ((key, value),) in subject}})

    app = web.Application()
    app.router.add_get("/{path:.*}", who)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=context)
    try:
        yield f"https://127.0.0.1:{server.port}"
    finally:
        await server.close()


async def ask(server: str, authority: Authority, **more: Any) -> Object:
    cert, key = authority.issue("controller", "system:masters")
    configuration = Configuration(server, StaticToken(), client_cert=cert, client_key=key, **more)
    async with kube.Client(configuration) as client:
        return await client.get(NAMESPACES, "x")


async def test_client_presents_its_certificate(tmp_path: Path) -> None:
    authority = Authority()
    async with tls_server(authority, tmp_path, "localhost") as url:
        answer = await ask(url, authority, ca=authority.pem)
    assert answer["subject"] == {
        "commonName": "controller",
        "organizationName": "system:masters",
    }


async def test_server_of_unknown_ca_is_unavailable(tmp_path: Path) -> None:
    authority = Authority()
    async with tls_server(authority, tmp_path, "localhost") as url:
        with pytest.raises(kube.Unavailable, match="certificate verify failed"):
            await ask(url, authority, ca=Authority().pem)


async def test_server_name_is_verified_and_configurable(tmp_path: Path) -> None:
    authority = Authority()
    async with tls_server(authority, tmp_path, "api.internal") as url:
        named = url.replace("127.0.0.1", "localhost")
        with pytest.raises(kube.Unavailable, match="localhost"):
            await ask(named, authority, ca=authority.pem)
        assert await ask(named, authority, ca=authority.pem, server_name="api.internal")


async def test_server_is_not_verified_when_verification_is_disabled(tmp_path: Path) -> None:
    authority = Authority()
    async with tls_server(authority, tmp_path, "localhost") as url:
        assert await ask(url, authority, verify=False)
