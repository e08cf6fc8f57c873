"""An OpenID Connect provider over TLS, as strict as real ones are; its user never has to type."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import http.server
import json
import secrets
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from fakes.https_server import serving
from gatehouse.standalone import pki

ENDS_AT_ONCE = 0
"""Lifetime of an ID token whose session must be refreshed by its first request."""

Answer = tuple[int, dict[str, str], bytes]

CLIENT, SECRET = "shop:web", "a secret of +tests/ & more"


def _rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


_first_key = functools.cache(_rsa_key)
"""Return the key that all providers of this process have at first: it takes long to draw one."""


class OidcProvider:
    """Its attributes may be changed; it remembers what it was asked."""

    def __init__(self, authority: pki.Pki) -> None:
        self.issuer = ""
        self.authority = authority.ca().cert.read_text()
        self._pki = authority
        self.user: dict[str, Any] = {"sub": "alice", "groups": ["staff", "admins"]}
        self.lifetime = 300
        """Seconds for which ID tokens hold. :data:`ENDS_AT_ONCE` needs no wait."""
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
        self._publish("RS256", _first_key())
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, str] = {}

    def rotate(self, kind: str = "RS256") -> None:
        """Sign with another key from now on, and publish no other."""
        if kind == "RS256":
            self._publish(kind, _rsa_key())
        else:
            self._publish(kind, ec.generate_private_key(ec.SECP256R1()))

    def _publish(self, kind: str, key: Any) -> None:
        self.algorithm, self.kid, self.key = kind, secrets.token_hex(4), key
        algorithms = jwt.algorithms
        of_key = algorithms.RSAAlgorithm if kind == "RS256" else algorithms.ECAlgorithm
        public = of_key.to_jwk(key.public_key())
        self.keys = {"keys": [{**json.loads(public), "kid": self.kid, "use": "sig"}]}

    def revocations(self, *, its_own: bool) -> str:
        """Return a revocation list of the CA, empty or with the provider's certificate."""
        ca, now = self._pki.ca(), datetime.now(UTC)
        authority = x509.load_pem_x509_certificate(ca.cert.read_bytes())
        own = x509.load_pem_x509_certificate(self._pki.leaf(pki.APISERVER).cert.read_bytes())
        taken_back = x509.RevokedCertificateBuilder().serial_number(own.serial_number)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(authority.subject)
            .last_update(now - timedelta(days=1))
            .next_update(now + timedelta(days=1))
        )
        if its_own:
            builder = builder.add_revoked_certificate(taken_back.revocation_date(now).build())
        key: Any = serialization.load_pem_private_key(ca.key.read_bytes(), None)
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def counted(self, path: str) -> int:
        return self.asked.count(path)

    def answer(self, method: str, url: str, authorization: str, body: str) -> Answer:
        """Return status, headers and body of the response."""
        path, query = urlsplit(url).path, dict(parse_qsl(urlsplit(url).query))
        self.asked.append(path)
        if self.away:
            return 502, {}, b""
        match method, path:
            case "GET", "/.well-known/openid-configuration":
                return _json(self._metadata())
            case "GET", "/keys":
                return _json(self.keys)
            case "GET", "/authorize":
                return self._authorize(query)
            case "POST", "/token":
                return self._token(authorization, dict(parse_qsl(body)))
            case "GET", "/logout":
                self.logouts.append(query)
                after = query.get("post_logout_redirect_uri")
                return (200, {}, b"bye") if after is None else (302, {"Location": after}, b"")
        return 404, {}, b""

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize?tenant=a",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "end_session_endpoint": f"{self.issuer}/logout",
            "token_endpoint_auth_methods_supported": self.methods,
        }

    def _authorize(self, query: dict[str, str]) -> Answer:
        self.authorized.append(query)
        if query["client_id"] != CLIENT or query["response_type"] != "code":
            return 400, {}, b""
        answer = {"state": query["state"]}
        if self.denies or "openid" not in query["scope"].split():
            answer |= {"error": self.denies or "invalid_scope"}
        else:
            answer["code"] = secrets.token_urlsafe(16)
            self._codes[answer["code"]] = query
        return 302, {"Location": f"{query['redirect_uri']}?{urlencode(answer)}"}, b""

    def _token(self, authorization: str, form: dict[str, str]) -> Answer:
        if _client(authorization, form) != (CLIENT, SECRET):
            return _json({"error": "invalid_client"}, 401)
        if form["grant_type"] == "refresh_token":
            # A second use is a theft.
            nonce = self._refresh.pop(form["refresh_token"], None)
            return self._given("") if nonce is not None else _refused("refresh token")
        login = self._codes.pop(form.get("code", ""), None)
        if login is None:
            return _refused("code")
        if login["redirect_uri"] != form["redirect_uri"]:
            return _refused("redirect_uri")
        if challenge := login.get("code_challenge", ""):
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != challenge:
                return _refused("code_verifier")
        return self._given(login["nonce"])

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + self.lifetime, "sid": "s-1",
            **({"nonce": nonce} if nonce else {}), **self.user, **self.forged,
        }  # fmt: skip
        return jwt.encode(claims, self.key, algorithm=self.algorithm, headers={"kid": self.kid})

    def _given(self, nonce: str) -> Answer:
        body: dict[str, Any] = {
            "access_token": "opaque", "token_type": "Bearer", "expires_in": self.lifetime,
            "id_token": self.id_token(nonce),
        }  # fmt: skip
        if self.refreshable:
            body["refresh_token"] = secrets.token_urlsafe(24)
            self._refresh[body["refresh_token"]] = nonce
        return _json(body)


def _client(authorization: str, form: dict[str, str]) -> tuple[str, str]:
    method, _, encoded = authorization.partition(" ")
    if method == "Basic":
        client, _, secret = base64.b64decode(encoded).decode().partition(":")
        return unquote_plus(client), unquote_plus(secret)
    return form.get("client_id", ""), form.get("client_secret", "")


def _json(body: Any, status: int = 200) -> Answer:
    return status, {"Content-Type": "application/json"}, json.dumps(body).encode()


def _refused(what: str) -> Answer:
    return _json({"error": "invalid_grant", "error_description": f"wrong {what}"}, 400)


@contextlib.contextmanager
def oidc_provider(directory: Path) -> Iterator[OidcProvider]:
    """Serve on some port of this machine."""
    files = pki.Pki(directory)
    files.ensure()
    pair = files.leaf(pki.APISERVER)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)
    provider = OidcProvider(files)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            authorization = self.headers.get("Authorization", "")
            status, headers, text = provider.answer(self.command, self.path, authorization, body)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = _answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serving(context, handler=Handler) as port:
        provider.issuer = f"https://127.0.0.1:{port}"
        yield provider
