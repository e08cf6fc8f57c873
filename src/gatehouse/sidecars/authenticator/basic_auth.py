"""Basic authentication (RFC 7617)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping

from aiohttp import web

from gatehouse.sidecars.authenticator import password_hashes
from gatehouse.sidecars.authenticator.config import Realm
from gatehouse.sidecars.authenticator.request import AuthRequest
from gatehouse.sidecars.base.failure_log import FailureLog

_CACHE_SIZE = 10_000
"""Maximum number of cached results. A strong hash takes a tenth of a second."""

MAX_CONCURRENT_HASHES = 2
"""Maximum number of hashes computed at the same time."""


class BasicAuthenticator:
    """Authenticates the users of one realm."""

    def __init__(self, realm: Realm, users: Mapping[bytes, bytes], failures: FailureLog) -> None:
        self._realm = realm
        self._users = users
        self._failures = failures
        self._key = secrets.token_bytes(32)
        self._results: dict[bytes, asyncio.Task[bool]] = {}
        self._hash_slots = asyncio.Semaphore(MAX_CONCURRENT_HASHES)
        self.actions = {"admit": self.check}

    async def check(self, request: AuthRequest) -> web.Response:
        """Accept a request with valid credentials, or respond with a challenge (401)."""
        pair = credentials(request.authorization)
        if pair is not None and await self._is_valid(*pair):
            return web.Response()
        quoted = re.sub(r'(["\\])', r"\\\1", self._realm.realm)
        challenge = {"WWW-Authenticate": f'Basic realm="{quoted}"', "Cache-Control": "no-store"}
        return web.Response(status=401, text="Authentication required.\n", headers=challenge)

    async def _is_valid(self, name: bytes, password: bytes) -> bool:
        hashed = self._users.get(name)
        if hashed is None:
            return False
        # The cache stores only keyed digests, which reveal no more than that two passwords are
        # equal.
        key = hmac.new(self._key, name + b"\0" + password, hashlib.sha256).digest()
        task = self._results.get(key)
        if task is None:
            task = self._results[key] = asyncio.create_task(self._matches(hashed, password))
            while len(self._results) > _CACHE_SIZE:
                del self._results[next(iter(self._results))]
        # A cancelled request must not cancel the computation that others wait for.
        return await asyncio.shield(task)

    async def _matches(self, hashed: bytes, password: bytes) -> bool:
        async with self._hash_slots:
            try:
                return await asyncio.to_thread(password_hashes.matches_hash, hashed, password)
            except password_hashes.UncheckableError as error:
                subject = f"authenticator: filter {self._realm.filter}"
                self._failures.record(subject, f"a password cannot be checked: {error}")
                return False


def credentials(header: str) -> tuple[bytes, bytes] | None:
    """Parse the header Authorization. Return None if it has no name and password."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None
