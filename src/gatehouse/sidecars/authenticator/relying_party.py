"""What becomes of a request for one relying party: let in, sent to the provider, let back or go."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time

import msgspec
from aiohttp import web

from gatehouse.sidecars.authenticator import claims, cookies, sessions, urls
from gatehouse.sidecars.authenticator.config import Party
from gatehouse.sidecars.authenticator.id_tokens import DeniedError
from gatehouse.sidecars.authenticator.provider import Provider, UnavailableError
from gatehouse.sidecars.authenticator.request import AuthRequest
from gatehouse.sidecars.authenticator.sessions import Login, Session, SessionCodec
from gatehouse.sidecars.base.failure_log import FailureLog

REFRESHED_SECONDS = 60.0
"""For how long a refreshed session is given to requests that still have the old one."""

MOST_ENDED = 100_000
"""Sessions remembered that their provider ended."""


REMOVED = "x-envoy-auth-headers-to-remove"
"""Names headers that Envoy takes away from a request before it goes on."""


class _Known(msgspec.Struct, frozen=True):
    session: Session
    written: list[str]
    """Cookies that are to be set."""


class RelyingParty:
    """One party. Every action gives an answer."""

    def __init__(
        self, party: Party, keeper: SessionCodec, provider: Provider, failures: FailureLog
    ) -> None:
        self.party = party
        self._keeper = keeper
        self._provider = provider
        self._failures = failures
        self._refreshed: dict[str, asyncio.Task[Session]] = {}
        self._ended: dict[str, float] = {}
        self.actions = {
            "check": self.check,
            "admit": self.admit,
            "login": self.login,
            "callback": self.callback,
            "logout": self.logout,
            "ended": self.ended,
        }

    async def check(self, asked: AuthRequest) -> web.Response:
        """Say whether a request may go on, and what its backend is told, in numbered headers.

        So NGINX is answered, which sends on to a login whom this does not know (401).
        """
        found = await self._known(asked)
        if isinstance(found, int):
            return web.Response(status=found)
        headers = {f"X-Set-Cookie-{number}": each for number, each in enumerate(found.written)}
        for number, name in enumerate(self.party.told):
            headers[f"X-Claim-{number}"] = claims.claim_text(found.session.claims.get(name))
        headers["X-Cookie"] = cookies.others(asked.cookie, self.party.cookie)
        return web.Response(headers={name: value for name, value in headers.items() if value})

    async def admit(self, asked: AuthRequest) -> web.Response:
        """Say whether a request may go on, with its headers; send to a login who is not known.

        So Envoy is answered, which gives any answer but 200 to the client.
        """
        found = await self._known(asked)
        if found == 401:
            return await self.login(asked)
        if isinstance(found, int):
            return _plain(found, "You may not see this.")
        headers = {"cookie": cookies.others(asked.cookie, self.party.cookie)}
        for header, name in zip(self.party.headers, self.party.told, strict=True):
            headers[header] = claims.claim_text(found.session.claims.get(name))
        given = {name: value for name, value in headers.items() if value}
        # What a client sent under these names is not to stay where there is nothing to tell.
        absent = ",".join(sorted(headers.keys() - given.keys()))
        answer = web.Response(headers=given | ({REMOVED: absent} if absent else {}))
        for each in found.written:
            answer.headers.add("Set-Cookie", each)
        return answer

    async def _known(self, asked: AuthRequest) -> _Known | int:
        """Give who asks, or the status of an answer to somebody who may not."""
        session, written = self._session(asked), []
        if session is None:
            return 401
        if time.time() >= session.fresh:
            try:
                session = await self._refresh(session)
                written = self._cookies(session, asked)
            except (DeniedError, UnavailableError, cookies.TooLongError) as error:
                self._failed(f"a session is not refreshed: {error}")
                return 401
        if not claims.authorized(self.party, session.claims):
            return 403
        return _Known(session, written)

    async def login(self, asked: AuthRequest) -> web.Response:
        """Send a user to the provider, and nobody else."""
        if not asked.navigates:
            return _plain(401, "Log in first.")
        try:
            metadata = await self._provider.metadata()
        except UnavailableError as error:
            return self._unavailable(error)
        state, nonce = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        verifier = secrets.token_urlsafe(48) if self.party.pkce else ""
        query = {
            **dict(self.party.extra),
            "response_type": "code",
            "client_id": self.party.client_id,
            "redirect_uri": self._callback(asked),
            "scope": " ".join(self.party.scopes),
            "state": state,
            "nonce": nonce,
        }
        if verifier:
            query |= {"code_challenge": _challenge(verifier), "code_challenge_method": "S256"}
        kept = Login(nonce, verifier, urls.safe_return_path(asked.uri), time.time())
        remembered = self._login_cookie(state, self._keeper.encode_login(state, kept), asked)
        url = urls.with_query(metadata.authorization_endpoint, query.items())
        return _redirect(url, [remembered])

    async def callback(self, asked: AuthRequest) -> web.Response:
        """Let a user in who comes back from the provider."""
        state = asked.query.get("state", "")
        text = cookies.parse(asked.cookie).get(self._login_name(state), "")
        kept = self._keeper.login(state, text)
        if kept is None or time.time() > kept.begun + sessions.LOGIN_SECONDS:
            return _plain(400, "This login was not begun in this browser, or took too long.")
        done = self._login_cookie(state, "", asked, age=0)
        try:
            session = await self._begin(asked, kept)
            return _redirect(kept.target, [*self._cookies(session, asked), done])
        except UnavailableError as error:
            return self._unavailable(error)
        except DeniedError as error:
            self._failed(f"a login is refused: {error}")
            return _plain(403, "The login was refused.", [done])
        except cookies.TooLongError as error:
            self._failed(f"a session is too long for cookies: {error}")
            return _plain(500, "The login cannot be kept.", [done])

    async def logout(self, asked: AuthRequest) -> web.Response:
        """End a user's session, here and at the provider."""
        session = self._session(asked)
        gone = self._gone(asked)
        after = urls.absolute(asked.origin, self.party.after_logout)
        try:
            url = (await self._provider.metadata()).end_session_endpoint
        except UnavailableError as error:
            self._failed(str(error))
            url = ""
        if not url:
            return _redirect(after, gone) if after else _plain(200, "Logged out.", gone)
        query = {"client_id": self.party.client_id}
        if session is not None and session.id_token:
            query["id_token_hint"] = session.id_token
        if after:
            query["post_logout_redirect_uri"] = after
        return _redirect(urls.with_query(url, query.items()), gone)

    async def ended(self, asked: AuthRequest) -> web.Response:
        """End a session as its provider says (OpenID Connect Front-Channel Logout)."""
        if asked.query.get("iss", self.party.issuer) != self.party.issuer:
            return _plain(400, "Another issuer.")
        if sid := asked.query.get("sid", ""):
            # Browsers may keep our cookie from a page of the provider's, so it is not relied on.
            self._ended.pop(sid, None)
            self._ended[sid] = time.time()
            while len(self._ended) > MOST_ENDED:
                del self._ended[next(iter(self._ended))]
        return _plain(200, "Logged out.", self._gone(asked))

    def _session(self, asked: AuthRequest) -> Session | None:
        found = cookies.parse(asked.cookie)
        text = cookies.joined(self.party.cookie, found)
        session = self._keeper.session(text) if text else None
        if session is None or time.time() >= session.ends:
            return None
        return None if session.begun <= self._ended.get(session.sid, 0.0) else session

    async def _begin(self, asked: AuthRequest, kept: Login) -> Session:
        if "code" not in asked.query:
            said = [asked.query.get(name, "")[:200] for name in ("error", "error_description")]
            raise DeniedError(f"the provider says {said[0]!r}, {said[1]!r}")
        form = {
            "grant_type": "authorization_code",
            "code": asked.query["code"],
            "redirect_uri": self._callback(asked),
        }
        if kept.verifier:
            form["code_verifier"] = kept.verifier
        given = await self._provider.tokens(**form)
        found = await self._provider.verified(given.id_token, kept.nonce)
        return sessions.new_session(
            self.party, found, time.time(), found["exp"], given.refresh_token, given.id_token
        )

    async def _refresh(self, session: Session) -> Session:
        """Refresh a session once, however many requests it comes with.

        A provider may take the second use of a refresh token for a theft.
        """
        if not session.refresh:
            raise DeniedError("it has no refresh token")
        key = _key(session)
        if key not in self._refreshed:
            self._refreshed[key] = asyncio.create_task(self._renewed(session))
            loop = asyncio.get_running_loop()
            loop.call_later(REFRESHED_SECONDS, self._refreshed.pop, key, None)
        # A client that leaves does not take the refresh with it.
        return await asyncio.shield(self._refreshed[key])

    async def _renewed(self, session: Session) -> Session:
        form = {"grant_type": "refresh_token", "refresh_token": session.refresh}
        try:
            given = await self._provider.tokens(**form)
        except UnavailableError:
            # The next request may find it back; what it denied it would deny again.
            self._refreshed.pop(_key(session), None)
            raise
        now = time.time()
        kept = msgspec.structs.replace(
            session,
            ends=now + self.party.timeout,
            fresh=now + max(given.expires_in, 1.0),
            refresh=given.refresh_token or session.refresh,
        )
        if not given.id_token:
            return kept
        found = await self._provider.verified(given.id_token, None)
        if found["sub"] != session.subject:
            raise DeniedError("the ID token is another user's")
        made = sessions.new_session(
            self.party, found, now, found["exp"], kept.refresh, given.id_token
        )
        return msgspec.structs.replace(made, begun=session.begun, sid=made.sid or session.sid)

    def _callback(self, asked: AuthRequest) -> str:
        return f"{self.party.callback_origin or asked.origin}{self.party.callback}"

    def _secure(self, asked: AuthRequest) -> bool:
        return self._callback(asked).startswith("https:")

    def _cookies(self, session: Session, asked: AuthRequest) -> list[str]:
        """Give what is to be set; raises TooLongError."""
        parts = cookies.split(self.party.cookie, self._keeper.encode_session(session))
        secure = self._secure(asked)
        return [cookies.written(name, value, secure=secure) for name, value in parts]

    def _gone(self, asked: AuthRequest) -> list[str]:
        present, secure = cookies.parse(asked.cookie), self._secure(asked)
        return [
            cookies.written(name, "", secure=secure, age=0)
            for name in cookies.names(self.party.cookie)
            if name in present
        ]

    def _login_name(self, state: str) -> str:
        digest = hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self.party.cookie}{cookies.LOGIN}{digest[:16]}"

    def _login_cookie(
        self, state: str, value: str, asked: AuthRequest, age: int = sessions.LOGIN_SECONDS
    ) -> str:
        return cookies.written(
            self._login_name(state), value,
            secure=self._secure(asked), path=self.party.callback, age=age,
        )  # fmt: skip

    def _failed(self, reason: str) -> None:
        self._failures.record(f"authenticator: filter {self.party.filter}", reason)

    def _unavailable(self, error: UnavailableError) -> web.Response:
        self._failed(f"the provider is not available: {error}")
        return _plain(503, "Nobody can log in at the moment.")


def _key(session: Session) -> str:
    return hashlib.sha256(session.refresh.encode()).hexdigest()


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _plain(status: int, text: str, written: list[str] | None = None) -> web.Response:
    return _answer(web.Response(status=status, text=f"{text}\n"), written or [])


def _redirect(url: str, written: list[str]) -> web.Response:
    return _answer(web.Response(status=302, headers={"Location": url}), written)


def _answer(response: web.Response, written: list[str]) -> web.Response:
    # The code in the provider's redirection is nobody else's to see.
    response.headers.update({"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
    for each in written:
        response.headers.add("Set-Cookie", each)
    return response
