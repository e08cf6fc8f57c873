"""What becomes of a request for which a name and a password are asked (RFC 7617)."""

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

CACHE_SIZE = 10_000
"""Answers that are not worked out again; a strong hash takes a tenth of a second."""

MAX_CONCURRENT_HASHES = 2
"""Hashes that are worked out at the same time."""


class BasicAuthenticator:
    """One realm, and its users."""

    def __init__(self, realm: Realm, users: Mapping[bytes, bytes], failures: FailureLog) -> None:
        self._realm = realm
        self._users = users
        self._failures = failures
        self._key = secrets.token_bytes(32)
        self._answers: dict[bytes, asyncio.Task[bool]] = {}
        self._turns = asyncio.Semaphore(MAX_CONCURRENT_HASHES)
        self.actions = {"admit": self.check}

    async def check(self, asked: AuthRequest) -> web.Response:
        """Say whether a request may go on; ask for a name and a password otherwise."""
        given = credentials(asked.authorization)
        if given is not None and await self._known(*given):
            return web.Response()
        quoted = re.sub(r'(["\\])', r"\\\1", self._realm.realm)
        challenge = {"WWW-Authenticate": f'Basic realm="{quoted}"', "Cache-Control": "no-store"}
        return web.Response(status=401, text="Say who you are.\n", headers=challenge)

    async def _known(self, name: bytes, password: bytes) -> bool:
        hashed = self._users.get(name)
        if hashed is None:
            return False
        # Of passwords nothing is kept that says more than that they were the same.
        key = hmac.new(self._key, name + b"\0" + password, hashlib.sha256).digest()
        task = self._answers.get(key)
        if task is None:
            task = self._answers[key] = asyncio.create_task(self._checked(hashed, password))
            while len(self._answers) > CACHE_SIZE:
                del self._answers[next(iter(self._answers))]
        # A client that leaves does not take the answer with it.
        return await asyncio.shield(task)

    async def _checked(self, hashed: bytes, password: bytes) -> bool:
        async with self._turns:
            try:
                return await asyncio.to_thread(password_hashes.matches, hashed, password)
            except password_hashes.UncheckableError as error:
                subject = f"authenticator: filter {self._realm.filter}"
                self._failures.record(subject, f"a password cannot be checked: {error}")
                return False


def credentials(header: str) -> tuple[bytes, bytes] | None:
    """Read the header Authorization; None if it has no name with a password."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None
