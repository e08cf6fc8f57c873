"""Authentication by client certificate or token, anonymous access, and impersonation."""

from __future__ import annotations

import ssl
import urllib.parse
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from aiohttp import web

from kube_api_server.errors import StatusError
from kube_api_server.identity import static_tokens as static
from kube_api_server.identity.service_account_tokens import API_AUDIENCE, ServiceAccountTokens
from kube_api_server.identity.users import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User
from kube_api_server.rbac.rules import Attributes
from kube_api_server.storage.store import ObjectStore

_ANONYMOUS_USER = User(ANONYMOUS, groups=(UNAUTHENTICATED,))


class Authenticator:
    """Determines the user of a request."""

    def __init__(
        self,
        tokens: ServiceAccountTokens,
        store: ObjectStore,
        static_tokens: dict[str, User] | None = None,
        *,
        anonymous: bool = False,
    ) -> None:
        self._tokens, self._store = tokens, store
        self._static, self._anonymous = static_tokens or {}, anonymous
        self._by_connection: weakref.WeakKeyDictionary[ssl.SSLObject, User] = (
            weakref.WeakKeyDictionary()
        )

    def authenticate(self, request: web.BaseRequest) -> User:
        """Return the user of a request. Raises StatusError 401.

        A client certificate was already verified by the TLS layer against the client CA.
        """
        header = request.headers.get("Authorization")
        if header:
            kind, _, token = header.partition(" ")
            if kind.lower() == "bearer" and token:
                return self.bearer(token.strip())
        tls = request.transport.get_extra_info("ssl_object") if request.transport else None
        if isinstance(tls, ssl.SSLObject):
            known = self._by_connection.get(tls)
            if known is not None:
                return known
            known = _user(tls.getpeercert() or {})
            if known is not None:
                self._by_connection[tls] = known
                return known
        if self._anonymous:
            return _ANONYMOUS_USER
        raise _unauthorized()

    def bearer(self, token: str) -> User:
        """Return the user of a token. Raises StatusError 401."""
        result = self.user_of(token, [API_AUDIENCE])
        if isinstance(result, str):
            raise _unauthorized()
        return result[0]

    def user_of(self, token: str, audiences: list[str]) -> tuple[User, list[str]] | str:
        """Return the user of any kind of token and the common audiences, or the reason for
        rejection.
        """
        if token.count(".") == 2:
            return self._tokens.check(token, audiences)
        user = static.find_user(self._static, token) if self._static else None
        if user is not None:
            return user, [API_AUDIENCE] if API_AUDIENCE in audiences or not audiences else []
        result = static.bootstrap_token_user(self._store, token)
        return result if isinstance(result, str) else (result, [API_AUDIENCE])


def _unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def _user(certificate: Mapping[str, Any]) -> User | None:
    """Return the subject of a certificate; None if it has no common name."""
    name, groups = "", []
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                name = value
            elif key == "organizationName":
                groups.append(value)
    return User(name, groups=(*groups, AUTHENTICATED)) if name else None


_USER, _UID, _GROUP = "Impersonate-User", "Impersonate-Uid", "Impersonate-Group"
_ANY, _EXTRA = "impersonate-", "impersonate-extra-"


def impersonated(request: web.BaseRequest) -> User | None:
    """Return the user that a request impersonates; None if it impersonates no user.

    Raises StatusError.
    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
    """
    headers = request.headers
    if not any(header.startswith(_ANY) for header in map(str.lower, headers)):
        return None
    name, groups = headers.get(_USER, ""), tuple(headers.getall(_GROUP, []))
    uid = headers.get(_UID, "")
    extra: dict[str, list[str]] = {}
    for header in set(headers):
        if header.lower().startswith(_EXTRA):
            key = urllib.parse.unquote(header[len(_EXTRA) :].lower())
            extra[key] = headers.getall(header)
    if not name:
        if groups or uid or extra:
            message = "requested [Impersonate-Group Impersonate-Uid Impersonate-Extra] without impersonating a user"  # noqa: E501
            raise StatusError(400, "BadRequest", message)
        return None
    if not groups and name.startswith("system:serviceaccount:"):
        parts = name.split(":")
        if len(parts) == 4:
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{parts[2]}")
    special = AUTHENTICATED if name != ANONYMOUS else UNAUTHENTICATED
    if special not in groups:
        groups = (*groups, special)
    return User(name, uid, groups, extra)


def impersonation_needs(request: web.BaseRequest, target: User) -> Iterator[Attributes]:
    """Yield the permissions that the real user needs to impersonate `target`."""
    parts = target.name.split(":")
    if target.name.startswith("system:serviceaccount:") and len(parts) == 4:
        yield Attributes("impersonate", "", "serviceaccounts", "", parts[2], parts[3], "")
    else:
        yield Attributes("impersonate", "", "users", "", "", target.name, "")
    for group in request.headers.getall(_GROUP, []):
        yield Attributes("impersonate", "", "groups", "", "", group, "")
    group = "authentication.k8s.io"
    if target.uid:
        yield Attributes("impersonate", group, "uids", "", "", target.uid, "")
    for key, values in target.extra.items():
        for value in values:
            yield Attributes("impersonate", group, "userextras", key, "", value, "")
