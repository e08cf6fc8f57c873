"""An OpenID Connect provider over TLS, as strict as real ones are; its user never has to type."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus, urlencode

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from gatehouse.standalone import pki

CLIENT, SECRET = "shop:web", "a secret of +tests/ & more"


class OidcProvider:
    """Its attributes may be changed; it remembers what it was asked."""

    def __init__(self, issuer: str, authority: str) -> None:
        self.issuer = issuer
        self.authority = authority
        self.user: dict[str, Any] = {"sub": "alice", "groups": ["staff", "admins"]}
        self.lifetime = 300
        """Seconds for which ID tokens hold."""
        self.refreshable = True
        self.away = False
        self.denies = ""
        """An error to send users back with."""
        self.forged: dict[str, Any] = {}
        """Claims that are in no honest ID token."""
        self.methods = ["client_secret_basic", "client_secret_post"]
        self.asked: list[str] = []
        self.authorized: list[dict[str, str]] = []
        self.logouts: list[dict[str, str]] = []
        self.rotate()
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, str] = {}

    def rotate(self, kind: str = "RS256") -> None:
        """Sign with another key from now on, and publish no other."""
        self.algorithm, self.kid = kind, secrets.token_hex(4)
        if kind == "RS256":
            self.key: Any = rsa.generate_private_key(65537, 2048)
            public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key())
        else:
            self.key = ec.generate_private_key(ec.SECP256R1())
            public = jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key())
        self.keys = {"keys": [{**json.loads(public), "kid": self.kid, "use": "sig"}]}

    def counted(self, path: str) -> int:
        return self.asked.count(path)

    async def metadata(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize?tenant=a",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "end_session_endpoint": f"{self.issuer}/logout",
                "token_endpoint_auth_methods_supported": self.methods,
            }
        )

    async def published(self, request: web.Request) -> web.Response:
        return web.json_response(self.keys)

    async def authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        self.authorized.append(query)
        assert query["client_id"] == CLIENT
        assert query["response_type"] == "code"
        assert "openid" in query["scope"].split()
        answer = {"state": query["state"]}
        if self.denies:
            answer |= {"error": self.denies}
        else:
            answer["code"] = secrets.token_urlsafe(16)
            self._codes[answer["code"]] = query
        location = f"{query['redirect_uri']}?{urlencode(answer)}"
        return web.Response(status=302, headers={"Location": location})

    async def token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        if self._client(request, form) != (CLIENT, SECRET):
            return web.json_response({"error": "invalid_client"}, status=401)
        if form["grant_type"] == "refresh_token":
            # A second use is a theft.
            nonce = self._refresh.pop(form["refresh_token"], None)
            return self._given("") if nonce is not None else self._refused("refresh token")
        asked = self._codes.pop(form.get("code", ""), None)
        if asked is None:
            return self._refused("code")
        if asked["redirect_uri"] != form["redirect_uri"]:
            return self._refused("redirect_uri")
        if challenge := asked.get("code_challenge", ""):
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != challenge:
                return self._refused("code_verifier")
        return self._given(asked["nonce"])

    async def logout(self, request: web.Request) -> web.Response:
        self.logouts.append(dict(request.query))
        after = request.query.get("post_logout_redirect_uri")
        if after is None:
            return web.Response(text="bye")
        return web.Response(status=302, headers={"Location": after})

    @staticmethod
    def _client(request: web.Request, form: dict[str, str]) -> tuple[str, str]:
        method, _, encoded = request.headers.get("Authorization", "").partition(" ")
        if method == "Basic":
            client, _, secret = base64.b64decode(encoded).decode().partition(":")
            return unquote_plus(client), unquote_plus(secret)
        return form.get("client_id", ""), form.get("client_secret", "")

    @staticmethod
    def _refused(what: str) -> web.Response:
        body = {"error": "invalid_grant", "error_description": f"wrong {what}"}
        return web.json_response(body, status=400)

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + self.lifetime, "sid": "s-1",
            **({"nonce": nonce} if nonce else {}), **self.user, **self.forged,
        }  # fmt: skip
        return jwt.encode(claims, self.key, algorithm=self.algorithm, headers={"kid": self.kid})

    def _given(self, nonce: str) -> web.Response:
        body: dict[str, Any] = {
            "access_token": "opaque", "token_type": "Bearer", "expires_in": self.lifetime,
            "id_token": self.id_token(nonce),
        }  # fmt: skip
        if self.refreshable:
            body["refresh_token"] = secrets.token_urlsafe(24)
            self._refresh[body["refresh_token"]] = nonce
        return web.json_response(body)

    @web.middleware
    async def remember(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(request.path)
        if self.away:
            return web.Response(status=502)
        found: web.StreamResponse = await handler(request)
        return found


@contextlib.asynccontextmanager
async def oidc_provider(directory: Path) -> AsyncIterator[OidcProvider]:
    """Serve on some port of this machine."""
    made = pki.Pki(directory)
    made.ensure()
    pair = made.leaf(pki.APISERVER)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)
    provider = OidcProvider("", made.ca().cert.read_text())
    application = web.Application(middlewares=[provider.remember])
    application.router.add_get("/.well-known/openid-configuration", provider.metadata)
    application.router.add_get("/authorize", provider.authorize)
    application.router.add_post("/token", provider.token)
    application.router.add_get("/keys", provider.published)
    application.router.add_get("/logout", provider.logout)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    provider.issuer = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await runner.cleanup()
