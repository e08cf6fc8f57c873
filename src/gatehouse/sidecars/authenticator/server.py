"""Server on the authenticator's socket. Each request is for one party, which stays while workers
use it."""

from __future__ import annotations

import asyncio
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
from gatehouse.sidecars.authenticator.ended_sessions import EndedSessions
from gatehouse.sidecars.authenticator.provider import Provider
from gatehouse.sidecars.authenticator.relying_party import RelyingParty
from gatehouse.sidecars.authenticator.request import AuthRequest
from gatehouse.sidecars.authenticator.sessions import SessionCodec
from gatehouse.sidecars.base.context_cache import ContextCache, naming
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.service import InvalidConfigError
from gatehouse.sidecars.base.sockets import ACCEPT_QUEUE_LENGTH
from kube_base.runtime.limited_http import LimitedHttpServer
from kube_base.runtime.quiet_re2 import quiet_options

_MAX_LINE_BYTES = 1 << 16
"""Maximum size of a request line in bytes. NGINX accepts 32 KB from clients."""

_KEEPALIVE_SECONDS = 75.0
"""Idle timeout in seconds, longer than NGINX's, so that NGINX never sends to a closed
connection."""


USER_ACTIONS = frozenset({"callback", "logout", "ended"})
"""Actions that are complete requests of users, with their query."""


class _LoadedParty(msgspec.Struct, frozen=True):
    """A party with the content of its files."""

    party: Party
    codec: SessionCodec
    secret: str
    trust: ssl.SSLContext


class _LoadedRealm(msgspec.Struct, frozen=True):
    """A realm with its users."""

    party: Realm
    users: dict[bytes, bytes]


class AuthServer:
    """The parties and realms behind one socket."""

    def __init__(self, directory: Path, linger: float, failures: FailureLog) -> None:
        """``linger`` is the time in seconds for which an unused party stays."""
        self.idle = asyncio.Event()
        self._socket = directory / Path(config.REQUESTS_SOCKET).name
        self._linger = linger
        self._failures = failures
        self._parties: dict[str, RelyingParty | BasicAuthenticator] = {}
        self._ended_sessions: dict[tuple[str, str, str], EndedSessions] = {}
        self._removal_timers: dict[str, asyncio.TimerHandle] = {}
        self._contexts = ContextCache()
        self._http: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None

    async def serve(self, configurations: Sequence[Path]) -> None:
        """Serve the parties of ``configurations``, and remove others after the linger time.

        All or nothing: raises InvalidConfigError without adding any party.
        """
        loaded = await asyncio.to_thread(_load, configurations, self._contexts)
        desired = {loaded_config.party.name for loaded_config in loaded}
        http = await self._listen() if desired else None
        for loaded_config in loaded:
            if http is not None and loaded_config.party.name not in self._parties:
                self._parties[loaded_config.party.name] = self._create(loaded_config, http)
        for name in self._parties:
            if name in desired:
                self._cancel_removal(name)
            elif name not in self._removal_timers:
                loop = asyncio.get_running_loop()
                self._removal_timers[name] = loop.call_later(self._linger, self._remove, name)
        self._update_idle()

    def _create(
        self, loaded_config: _LoadedParty | _LoadedRealm, http: aiohttp.ClientSession
    ) -> RelyingParty | BasicAuthenticator:
        if isinstance(loaded_config, _LoadedRealm):
            return BasicAuthenticator(loaded_config.party, loaded_config.users, self._failures)
        provider = Provider(loaded_config.party, loaded_config.secret, loaded_config.trust, http)
        # Parties that can read the same cookies also share the ended sessions.
        owner = (
            loaded_config.party.owner,
            loaded_config.party.issuer,
            loaded_config.party.client_id,
        )
        ended = self._ended_sessions.setdefault(owner, EndedSessions())
        return RelyingParty(
            loaded_config.party, loaded_config.codec, provider, self._failures, ended
        )

    async def housekeeping(self) -> None:
        """Do nothing: there are no periodic tasks."""

    async def drain(self) -> None:
        """Stop accepting requests and finish the received ones."""
        self._socket.unlink(missing_ok=True)
        for name in tuple(self._parties):
            self._remove(name)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._http is not None:
            await self._http.close()

    async def _listen(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        if self._runner is None:
            server = LimitedHttpServer(
                self._answer,
                keepalive_timeout=_KEEPALIVE_SECONDS,
                max_line_size=_MAX_LINE_BYTES,
                max_field_size=_MAX_LINE_BYTES,
            )
            self._runner = web.ServerRunner(server)
            await self._runner.setup()
            self._socket.unlink(missing_ok=True)
            await web.UnixSite(self._runner, self._socket, backlog=ACCEPT_QUEUE_LENGTH).start()
        return self._http

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        # The raw path: the proxy generated it, and parsing a URL takes as long as decrypting a
        # session.
        path, _, query = request.raw_path.partition("?")
        name, _, action = path.removeprefix("/").partition("/")
        party = self._parties.get(name)
        act = party.actions.get(action) if party is not None else None
        if act is None:
            # Proxies deny access on this status.
            return web.Response(status=503)
        headers = request.headers
        auth_request = AuthRequest(
            request.method,
            dict(parse_qsl(query)) if query and action in USER_ACTIONS else {},
            "; ".join(headers.getall("Cookie", ())),
            headers.get("X-Origin", ""),
            headers.get("X-Uri", ""),
            headers.get("X-Upgrade", ""),
            headers.get("Authorization", ""),
            headers.get("X-Mode", ""),
        )
        try:
            return await act(auth_request)
        except Exception as error:
            # Access is denied, and other requests are served.
            self._failures.record(f"authenticator: {action}", f"{type(error).__name__}: {error}")
            return web.Response(status=500)

    def _cancel_removal(self, name: str) -> None:
        if timer := self._removal_timers.pop(name, None):
            timer.cancel()

    def _remove(self, name: str) -> None:
        self._cancel_removal(name)
        del self._parties[name]
        self._update_idle()

    def _update_idle(self) -> None:
        if self._parties:
            self.idle.clear()
        else:
            self.idle.set()


def _load(configurations: Sequence[Path], cache: ContextCache) -> list[_LoadedParty | _LoadedRealm]:
    """Load parties and realms with the content of their files. Raises InvalidConfigError."""
    loaded: dict[str, _LoadedParty | _LoadedRealm] = {}
    # Parties share contexts, so that their files are read once.
    contexts: dict[tuple[Path, str], ssl.SSLContext] = {}
    for configuration in configurations:
        try:
            parties = config.read_parties(configuration)
            realms = config.realms(configuration)
        except (OSError, msgspec.MsgspecError) as error:
            raise InvalidConfigError(f"{config.AUTHENTICATORS_FILE}: {error}") from error
        for realm in realms:
            loaded[realm.name] = _realm(configuration, realm)
        for party in parties:
            loaded[party.name] = _party(configuration, party, contexts, cache)
    cache.forget_unused()
    return list(loaded.values())


def _realm(configuration: Path, realm: Realm) -> _LoadedRealm:
    try:
        users = password_hashes.parse_password_file((configuration / realm.users).read_bytes())
    except OSError as error:
        raise InvalidConfigError(
            f"filter {realm.filter}: {realm.users}: {error.strerror}"
        ) from error
    return _LoadedRealm(realm, users)


def _party(
    configuration: Path,
    party: Party,
    contexts: dict[tuple[Path, str], ssl.SSLContext],
    cache: ContextCache,
) -> _LoadedParty:
    owner = party.label
    with naming(f"{owner}: {party.secret}"):
        secret = (configuration / party.secret).read_bytes()
    key = (configuration / party.trust, party.revoked)
    if key not in contexts:
        contexts[key] = _context(configuration, party, cache)
    for rule in party.rules:
        for pattern in (value for claim in rule.claims if claim.regex for value in claim.values):
            try:
                re2.compile(pattern, quiet_options())
            except re2.error as error:
                raise InvalidConfigError(f"{owner}: {pattern!r}: {error}") from error
    return _LoadedParty(
        party, SessionCodec(party, secret), secret.decode(errors="replace"), contexts[key]
    )


def _context(configuration: Path, party: Party, cache: ContextCache) -> ssl.SSLContext:
    trust, revoked = (f"{party.label}: {path}" for path in (party.trust, party.revoked))

    def load() -> ssl.SSLContext:
        with naming(trust):
            context = ssl.create_default_context(cafile=str(configuration / party.trust))
        if party.revoked:
            with naming(revoked):
                context.load_verify_locations(configuration / party.revoked)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return context

    with naming(trust):
        contents = [(configuration / party.trust).read_bytes()]
    if party.revoked:
        with naming(revoked):
            contents.append((configuration / party.revoked).read_bytes())
    return cache.get(contents, load)
