"""Access to the console: one login, a cookie, and headers against other web pages."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import structlog
from aiohttp import web

from gatehouse.console.pages import text_page

log = structlog.get_logger("gatehouse.console.access")

ROOT_PATH = "/console/"
LOGIN_PATH = "/console/login"
API_PATH = "/console/api/v1"

_LOCAL_NAMES = frozenset({"127.0.0.1", "::1", "localhost"})
"""Names that no DNS server of an attacker can lead to this machine."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every response. A page of another origin reads nothing, and no inline script runs."""

_NOT_LOGGED_IN = (
    "Not logged in",
    "Open the link that gatehouse console printed. It works once. If it was used, start gatehouse "
    "console again.",
)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Access:
    """Login token and session of one console."""

    def __init__(self) -> None:
        self._login_token = secrets.token_urlsafe(32)
        self._session = ""

    def login_link(self, port: int) -> str:
        """Return the URL that logs a browser in, once."""
        return f"http://127.0.0.1:{port}{LOGIN_PATH}?token={self._login_token}"

    async def log_in(self, request: web.Request) -> web.StreamResponse:
        """Exchange the token for a cookie.

        The answer is a page that leads on, and no redirect: browsers send no SameSite=Strict cookie
        on a redirect of a link that another page or program contains.
        """
        token = request.query.get("token", "")
        if not self._login_token or not _equal(token, self._login_token):
            log.warning("login rejected", peer=request.remote or "")
            return text_page(*_NOT_LOGGED_IN, status=401)
        self._login_token, self._session = "", secrets.token_urlsafe(32)
        response = text_page("Logged in", "The console opens.", forward_to=ROOT_PATH)
        response.set_cookie(
            _cookie_name(request), self._session, path="/console", httponly=True, samesite="Strict"
        )
        return response

    @web.middleware
    async def middleware(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Reject requests of other hosts, pages and users. Set the headers of responses."""
        response = self._rejection(request) or await _answer(request, handler)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _rejection(self, request: web.Request) -> web.Response | None:
        if not _is_local(request.headers.get("Host", "")):
            # DNS rebinding: the name of a foreign page leads to this server.
            text = "The console is reached only as 127.0.0.1 or localhost."
            return text_page("Wrong host", text, status=421)
        if request.path == LOGIN_PATH:
            return None
        if not self._session or not _equal(
            request.cookies.get(_cookie_name(request), ""), self._session
        ):
            return text_page(*_NOT_LOGGED_IN, status=401)
        foreign = request.headers.get("Sec-Fetch-Site", "") in ("cross-site", "same-site")
        if foreign and request.path.startswith(API_PATH):
            return text_page("Foreign page", "Only the console reads its API.", status=403)
        return None


async def _answer(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return text_page(error.reason, "The console has no such page.", status=error.status)


def security_headers(response: web.StreamResponse) -> None:
    """Set the headers of a response that is sent before its handler returns."""
    response.headers.update(_HEADERS)


def _is_local(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in _LOCAL_NAMES
    except ValueError:
        return False


def _equal(value: str, expected: str) -> bool:
    return hmac.compare_digest(value.encode("utf-8", "replace"), expected.encode())


def _cookie_name(request: web.Request) -> str:
    """Return the name of the cookie. Cookies of all ports of a host share their names."""
    address = request.transport.get_extra_info("sockname") if request.transport else None
    return f"gatehouse_console_{address[1] if address else 0}"
