"""The socket: requests of a proxy, each for one party, which stays while workers may ask."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl

import aiohttp
import msgspec
import re2
from aiohttp import web

from gatehouse.sidecars.authenticator import config, password_hashes
from gatehouse.sidecars.authenticator.basic_auth import BasicAuthenticator
from gatehouse.sidecars.authenticator.config import Party, Realm
from gatehouse.sidecars.authenticator.provider import Provider
from gatehouse.sidecars.authenticator.relying_party import RelyingParty
from gatehouse.sidecars.authenticator.request import AuthRequest
from gatehouse.sidecars.authenticator.sessions import SessionCodec
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.service import RefusedError

BACKLOG = 4096
"""Connections not taken yet; with a full one NGINX is refused at once."""

MAX_LINE_BYTES = 1 << 16
"""Bytes of the longest line of a request; NGINX takes 32 KB of its clients."""

KEEPALIVE_SECONDS = 75.0
"""More than NGINX keeps a connection idle, so that it never sends to one that ends."""


ASKED_BY_USERS = frozenset({"callback", "logout", "ended"})
"""Actions that are whole requests of users, whose query counts."""

# What is no request is answered 400 without a word: clients make some as fast as they like.
_SILENT = logging.getLogger(f"{__name__}.http")
_SILENT.disabled = True


class _Read(msgspec.Struct, frozen=True):
    """A party with what its description names."""

    party: Party
    keeper: SessionCodec
    secret: str
    trust: ssl.SSLContext


class _ReadRealm(msgspec.Struct, frozen=True):
    """A realm with its users."""

    party: Realm
    users: dict[bytes, bytes]


class AuthServer:
    """The relying parties behind one socket."""

    def __init__(self, directory: Path, linger: float, failures: FailureLog) -> None:
        """``linger``: seconds for which a party stays after it is no longer asked for."""
        self.idle = asyncio.Event()
        self._socket = directory / Path(config.SOCKET).name
        self._linger = linger
        self._failures = failures
        self._parties: dict[str, RelyingParty | BasicAuthenticator] = {}
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        self._http: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None

    async def serve(self, configurations: Sequence[Path]) -> None:
        """Serve the parties that ``configurations`` describe, and in a while no others.

        All of them or, raising RefusedError, nothing new.
        """
        read = await asyncio.to_thread(_read, configurations)
        wanted = {each.party.name for each in read}
        http = await self._listen() if wanted else None
        for each in read:
            if http is not None and each.party.name not in self._parties:
                self._parties[each.party.name] = self._made(each, http)
        for name in self._parties:
            if name in wanted:
                self._stay(name)
            elif name not in self._leaving:
                loop = asyncio.get_running_loop()
                self._leaving[name] = loop.call_later(self._linger, self._forget, name)
        self._note()

    def _made(
        self, each: _Read | _ReadRealm, http: aiohttp.ClientSession
    ) -> RelyingParty | BasicAuthenticator:
        if isinstance(each, _ReadRealm):
            return BasicAuthenticator(each.party, each.users, self._failures)
        provider = Provider(each.party, each.secret, each.trust, http)
        return RelyingParty(each.party, each.keeper, provider, self._failures)

    async def housekeeping(self) -> None:
        """Nothing is to be done now and then."""

    async def drain(self) -> None:
        """Take no more requests, and let those that came be answered."""
        self._socket.unlink(missing_ok=True)
        for name in tuple(self._parties):
            self._forget(name)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._http is not None:
            await self._http.close()

    async def _listen(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        if self._runner is None:
            server = web.Server(
                self._answer, access_log=None, keepalive_timeout=KEEPALIVE_SECONDS,
                max_line_size=MAX_LINE_BYTES, max_field_size=MAX_LINE_BYTES, logger=_SILENT,
            )  # fmt: skip
            self._runner = web.ServerRunner(server)
            await self._runner.setup()
            self._socket.unlink(missing_ok=True)
            await web.UnixSite(self._runner, self._socket, backlog=BACKLOG).start()
        return self._http

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        # As it was sent: the proxy wrote it, and parsing a URL takes as long as opening a session.
        path, _, query = request.raw_path.partition("?")
        name, _, action = path.removeprefix("/").partition("/")
        party = self._parties.get(name)
        act = party.actions.get(action) if party is not None else None
        if act is None:
            # Whatever a proxy makes of this, it lets nobody in.
            return web.Response(status=503)
        said = request.headers
        asked = AuthRequest(
            request.method,
            dict(parse_qsl(query)) if query and action in ASKED_BY_USERS else {},
            "; ".join(said.getall("Cookie", ())),
            said.get("X-Origin", ""),
            said.get("X-Uri", ""),
            said.get("X-Upgrade", ""),
            said.get("Authorization", ""),
            said.get("X-Mode", ""),
        )
        try:
            return await act(asked)
        except Exception as error:
            # Nobody is let in, and others are served on.
            self._failures.record(f"authenticator: {action}", f"{type(error).__name__}: {error}")
            return web.Response(status=500)

    def _stay(self, name: str) -> None:
        if leaving := self._leaving.pop(name, None):
            leaving.cancel()

    def _forget(self, name: str) -> None:
        self._stay(name)
        del self._parties[name]
        self._note()

    def _note(self) -> None:
        if self._parties:
            self.idle.clear()
        else:
            self.idle.set()


def _read(configurations: Sequence[Path]) -> list[_Read | _ReadRealm]:
    """Read parties with what they name. Raises RefusedError."""
    found: dict[str, _Read | _ReadRealm] = {}
    # Parties share theirs: reading all the authorities of a system takes milliseconds.
    contexts: dict[tuple[Path, str], ssl.SSLContext] = {}
    for configuration in configurations:
        try:
            parties = config.read(configuration)
            realms = config.realms(configuration)
        except (OSError, msgspec.MsgspecError) as error:
            raise RefusedError(f"{config.FILE} cannot be read: {error}") from error
        for realm in realms:
            found[realm.name] = _realm(configuration, realm)
        for party in parties:
            found[party.name] = _party(configuration, party, contexts)
    return list(found.values())


def _realm(configuration: Path, realm: Realm) -> _ReadRealm:
    try:
        users = password_hashes.users((configuration / realm.users).read_bytes())
    except OSError as error:
        raise RefusedError(f"filter {realm.filter}: {realm.users}: {error.strerror}") from error
    return _ReadRealm(realm, users)


def _party(
    configuration: Path, party: Party, contexts: dict[tuple[Path, str], ssl.SSLContext]
) -> _Read:
    where = party.secret
    try:
        secret = (configuration / party.secret).read_bytes()
        where, key = party.trust, (configuration / party.trust, party.revoked)
        if key not in contexts:
            contexts[key] = ssl.create_default_context(cafile=str(key[0]))
            if party.revoked:
                where = party.revoked
                contexts[key].load_verify_locations(configuration / party.revoked)
                contexts[key].verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        for rule in party.rules:
            for pattern in (each for claim in rule.claims if claim.regex for each in claim.values):
                where = repr(pattern)
                re2.compile(pattern)
    except (OSError, re2.error) as error:
        said = getattr(error, "strerror", None) or error
        raise RefusedError(f"filter {party.filter}: {where}: {said}") from error
    return _Read(party, SessionCodec(party, secret), secret.decode(errors="replace"), contexts[key])
