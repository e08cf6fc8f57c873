"""OpenID Connect relying party: checks sessions, starts logins, handles callback and logout."""

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
from gatehouse.sidecars.authenticator.ended_sessions import EndedSessions
from gatehouse.sidecars.authenticator.id_tokens import DeniedError
from gatehouse.sidecars.authenticator.provider import Provider, ProviderUnavailableError
from gatehouse.sidecars.authenticator.request import AuthRequest
from gatehouse.sidecars.authenticator.sessions import Login, LoginSession, SessionCodec
from gatehouse.sidecars.base.failure_log import FailureLog

REFRESH_REUSE_SECONDS = 60.0
"""Time in seconds for which a refreshed session is returned to requests with the old one."""


REMOVED = "x-envoy-auth-headers-to-remove"
"""Response header with the names of request headers that Envoy removes."""


class _Authenticated(msgspec.Struct, frozen=True):
    session: LoginSession
    cookies_to_set: list[str]
    """Set-Cookie values."""


class RelyingParty:
    """One party. Every action returns a response."""

    def __init__(
        self,
        party: Party,
        codec: SessionCodec,
        provider: Provider,
        failures: FailureLog,
        ended_sessions: EndedSessions,
    ) -> None:
        self.party = party
        self._codec = codec
        self._provider = provider
        self._failures = failures
        self._refreshed: dict[str, asyncio.Task[LoginSession]] = {}
        self._ended_sessions = ended_sessions
        self.actions = {
            "check": self.check,
            "admit": self.admit,
            "login": self.login,
            "callback": self.callback,
            "logout": self.logout,
            "ended": self.ended,
        }

    async def check(self, request: AuthRequest) -> web.Response:
        """Check a request of NGINX. The response contains its headers for the backend, numbered.

        NGINX redirects to a login on 401.
        """
        outcome = await self._authenticate(request)
        if isinstance(outcome, int):
            return web.Response(status=outcome)
        headers = {
            f"X-Set-Cookie-{number}": cookie for number, cookie in enumerate(outcome.cookies_to_set)
        }
        for number, name in enumerate(self.party.backend_claims):
            headers[f"X-Claim-{number}"] = claims.claim_text(outcome.session.claims.get(name))
        headers["X-Cookie"] = cookies.without_session(request.cookie, self.party.cookie)
        return web.Response(headers={name: value for name, value in headers.items() if value})

    async def admit(self, request: AuthRequest) -> web.Response:
        """Check a request of Envoy. The response contains its headers, or a redirect to the login.

        Envoy passes every response except 200 to the client.
        """
        outcome = await self._authenticate(request)
        if outcome == 401:
            return await self.login(request)
        if isinstance(outcome, int):
            return _plain(outcome, "Access denied.")
        headers = {"cookie": cookies.without_session(request.cookie, self.party.cookie)}
        for header, name in zip(self.party.headers, self.party.backend_claims, strict=True):
            headers[header] = claims.claim_text(outcome.session.claims.get(name))
        present = {name: value for name, value in headers.items() if value}
        # Client headers with these names must be removed if there is no value for them.
        absent = ",".join(sorted(headers.keys() - present.keys()))
        answer = web.Response(headers=present | ({REMOVED: absent} if absent else {}))
        for cookie in outcome.cookies_to_set:
            answer.headers.add("Set-Cookie", cookie)
        return answer

    async def _authenticate(self, request: AuthRequest) -> _Authenticated | int:
        """Return the session of a request, or the status of a denial."""
        session, cookies_to_set = self._session(request), []
        if session is None:
            return 401
        if time.time() >= session.fresh:
            try:
                session = await self._refresh(session)
                cookies_to_set = self._cookies(session, request)
            except (DeniedError, ProviderUnavailableError, cookies.TooLongError) as error:
                self._failed(f"session refresh failed: {error}")
                return 401
        if not claims.authorized(self.party, session.claims):
            return 403
        return _Authenticated(session, cookies_to_set)

    async def login(self, request: AuthRequest) -> web.Response:
        """Redirect a user to the provider. Requests that are not navigations get 401."""
        if not request.navigates:
            return _plain(401, "Login required.")
        try:
            metadata = await self._provider.metadata()
        except ProviderUnavailableError as error:
            return self._unavailable(error)
        state, nonce = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        verifier = secrets.token_urlsafe(48) if self.party.pkce else ""
        query = {
            **dict(self.party.extra),
            "response_type": "code",
            "client_id": self.party.client_id,
            "redirect_uri": self._callback(request),
            "scope": " ".join(self.party.scopes),
            "state": state,
            "nonce": nonce,
        }
        if verifier:
            query |= {"code_challenge": _challenge(verifier), "code_challenge_method": "S256"}
        login = Login(nonce, verifier, urls.safe_return_path(request.uri), time.time())
        login_cookie = self._login_cookie(state, self._codec.encode_login(state, login), request)
        url = urls.with_query(metadata.authorization_endpoint, query.items())
        return _redirect(url, [login_cookie])

    async def callback(self, request: AuthRequest) -> web.Response:
        """Complete a login when the user returns from the provider."""
        state = request.query.get("state", "")
        text = cookies.parse_cookies(request.cookie).get(self._login_name(state), "")
        login = self._codec.login(state, text)
        if login is None or time.time() > login.begun + sessions.LOGIN_SECONDS:
            return _plain(400, "This login was not started in this browser, or has expired.")
        expired_cookie = self._login_cookie(state, "", request, age=0)
        try:
            session = await self._begin(request, login)
            return _redirect(login.target, [*self._cookies(session, request), expired_cookie])
        except ProviderUnavailableError as error:
            return self._unavailable(error)
        except DeniedError as error:
            self._failed(f"login denied: {error}")
            return _plain(403, "The login was refused.", [expired_cookie])
        except cookies.TooLongError as error:
            self._failed(f"the session is too long for cookies: {error}")
            return _plain(500, "The session is too long.", [expired_cookie])

    async def logout(self, request: AuthRequest) -> web.Response:
        """End a user's session, here and at the provider. Copies of its cookies end too."""
        session = self._session(request)
        if session is not None:
            self._ended_sessions.log_out(session, time.time())
        expired_cookies = self._expired_cookies(request)
        after = urls.absolute(request.origin, self.party.after_logout)
        try:
            url = (await self._provider.metadata()).end_session_endpoint
        except ProviderUnavailableError as error:
            self._failed(str(error))
            url = ""
        if not url:
            return (
                _redirect(after, expired_cookies)
                if after
                else _plain(200, "Logged out.", expired_cookies)
            )
        query = {"client_id": self.party.client_id}
        if session is not None and session.id_token:
            query["id_token_hint"] = session.id_token
        if after:
            query["post_logout_redirect_uri"] = after
        return _redirect(urls.with_query(url, query.items()), expired_cookies)

    async def ended(self, request: AuthRequest) -> web.Response:
        """End a session on request of its provider (OpenID Connect Front-Channel Logout)."""
        if request.query.get("iss", self.party.issuer) != self.party.issuer:
            return _plain(400, "Invalid issuer.")
        if sid := request.query.get("sid", ""):
            # A browser may not send the session's cookie with a page of the provider, so the cookie
            # is not required.
            self._ended_sessions.end(sid, time.time())
        return _plain(200, "Logged out.", self._expired_cookies(request))

    def _session(self, request: AuthRequest) -> LoginSession | None:
        text = cookies.join_cookies(self.party.cookie, cookies.parse_cookies(request.cookie))
        session = self._codec.session(text) if text else None
        now = time.time()
        # No cookie of an earlier time is valid.
        self._ended_sessions.expire(now - self.party.timeout)
        if session is None or now >= session.ends:
            return None
        return None if self._ended_sessions.is_ended(session, now) else session

    async def _begin(self, request: AuthRequest, login: Login) -> LoginSession:
        if "code" not in request.query:
            error = [request.query.get(name, "")[:200] for name in ("error", "error_description")]
            raise DeniedError(f"the provider says {error[0]!r}, {error[1]!r}")
        form = {
            "grant_type": "authorization_code",
            "code": request.query["code"],
            "redirect_uri": self._callback(request),
        }
        if login.verifier:
            form["code_verifier"] = login.verifier
        tokens = await self._provider.tokens(**form)
        verified = await self._provider.verified(tokens.id_token, login.nonce)
        return sessions.new_session(
            self.party,
            verified,
            time.time(),
            verified["exp"],
            tokens.refresh_token,
            tokens.id_token,
            secrets.token_urlsafe(12),
        )

    async def _refresh(self, session: LoginSession) -> LoginSession:
        """Refresh a session once for all concurrent requests with it.

        A provider may treat the second use of a refresh token as theft.
        """
        if not session.refresh:
            raise DeniedError("the session has no refresh token")
        key = _key(session)
        if key not in self._refreshed:
            self._refreshed[key] = asyncio.create_task(self._request_refresh(session))
            loop = asyncio.get_running_loop()
            loop.call_later(REFRESH_REUSE_SECONDS, self._refreshed.pop, key, None)
        # A cancelled request must not cancel the refresh that others wait for.
        return await asyncio.shield(self._refreshed[key])

    async def _request_refresh(self, session: LoginSession) -> LoginSession:
        form = {"grant_type": "refresh_token", "refresh_token": session.refresh}
        try:
            tokens = await self._provider.tokens(**form)
        except ProviderUnavailableError:
            # The next request retries. A denial is cached, because it would be repeated.
            self._refreshed.pop(_key(session), None)
            raise
        now = time.time()
        renewed = msgspec.structs.replace(
            session,
            ends=now + self.party.timeout,
            fresh=now + max(tokens.expires_in, 1.0),
            refresh=tokens.refresh_token or session.refresh,
        )
        if not tokens.id_token:
            return renewed
        verified = await self._provider.verified(tokens.id_token, None)
        if verified["sub"] != session.subject:
            raise DeniedError("the ID token is for another user")
        new = sessions.new_session(
            self.party, verified, now, verified["exp"], renewed.refresh, tokens.id_token
        )
        return msgspec.structs.replace(
            new, begun=session.begun, sid=new.sid or session.sid, id=session.id
        )

    def _callback(self, request: AuthRequest) -> str:
        return f"{self.party.callback_origin or request.origin}{self.party.callback}"

    def _secure(self, request: AuthRequest) -> bool:
        return self._callback(request).startswith("https:")

    def _cookies(self, session: LoginSession, request: AuthRequest) -> list[str]:
        """Return the Set-Cookie values of a session. Raises TooLongError."""
        parts = cookies.split(self.party.cookie, self._codec.encode_session(session))
        secure = self._secure(request)
        return [cookies.set_cookie(name, value, secure=secure) for name, value in parts]

    def _expired_cookies(self, request: AuthRequest) -> list[str]:
        present, secure = cookies.parse_cookies(request.cookie), self._secure(request)
        return [
            cookies.set_cookie(name, "", secure=secure, age=0)
            for name in cookies.names(self.party.cookie)
            if name in present
        ]

    def _login_name(self, state: str) -> str:
        digest = hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self.party.cookie}{cookies.LOGIN}{digest[:16]}"

    def _login_cookie(
        self, state: str, value: str, request: AuthRequest, age: int = sessions.LOGIN_SECONDS
    ) -> str:
        return cookies.set_cookie(
            self._login_name(state), value,
            secure=self._secure(request), path=self.party.callback, age=age,
        )  # fmt: skip

    def _failed(self, reason: str) -> None:
        self._failures.record(f"authenticator: {self.party.label}", reason)

    def _unavailable(self, error: ProviderUnavailableError) -> web.Response:
        self._failed(f"the provider is not available: {error}")
        return _plain(503, "Login is currently not available.")


def _key(session: LoginSession) -> str:
    return hashlib.sha256(session.refresh.encode()).hexdigest()


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _plain(status: int, text: str, cookies_to_set: list[str] | None = None) -> web.Response:
    return _answer(web.Response(status=status, text=f"{text}\n"), cookies_to_set or [])


def _redirect(url: str, cookies_to_set: list[str]) -> web.Response:
    return _answer(web.Response(status=302, headers={"Location": url}), cookies_to_set)


def _answer(response: web.Response, cookies_to_set: list[str]) -> web.Response:
    # The redirect of the provider contains the code, which must not leak to others.
    response.headers.update({"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
    for cookie in cookies_to_set:
        response.headers.add("Set-Cookie", cookie)
    return response
