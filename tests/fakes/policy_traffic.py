"""Clients of a Gateway with policies: their credentials, and the responses that they get."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import jwt
import pytest

from fakes.installation import PORT, address, apply, hello
from fakes.patience import until
from gatehouse.kube import client as kube

KEY = b"a secret that signs the tokens of tests"
KEY_SET = json.dumps(
    {"keys": [{"kty": "oct", "kid": "a", "k": base64.urlsafe_b64encode(KEY).decode()}]}
).encode()
REDIRECT = {"type": "RequestRedirect", "requestRedirect": {"hostname": "b.example"}}


@pytest.fixture
async def http(
    client: kube.Client, backends: None, gateway_class: str
) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client of the Gateway `web`."""
    await apply(client, hello(gateway_class))
    where = await address(client)
    async with aiohttp.ClientSession(f"http://{where}:{PORT}") as session:
        yield session


async def status(http: aiohttp.ClientSession, path: str, **request: Any) -> int:
    method = request.pop("method", "GET")
    async with http.request(method, path, allow_redirects=False, **request) as response:
        return response.status


async def served(http: aiohttp.ClientSession, path: str, expected: int, **request: Any) -> None:
    """Wait until a request gets a status."""

    async def reached() -> bool:
        return await status(http, path, **request) == expected

    await until(reached)


def credentials(name: str, content: bytes = b"", **entries: bytes) -> dict[str, Any]:
    """Return a Secret with users or keys in the entry ``auth``, or with other entries."""
    contents = entries or {"auth": content}
    data = {entry: base64.b64encode(value).decode() for entry, value in contents.items()}
    return {"kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "data": data}


def basic(user: str, password: str) -> dict[str, str]:
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


def token(key: bytes = KEY, **claims: Any) -> dict[str, str]:
    """Return a header with a token, valid for ten minutes by default."""
    claims = {"exp": int(time.time()) + 600, **claims}
    signed = jwt.encode(claims, key, algorithm="HS256", headers={"kid": "a"})
    return {"Authorization": f"Bearer {signed}"}
