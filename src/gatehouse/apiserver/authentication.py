"""Who asks: client certificates and ServiceAccount tokens."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from gatehouse.apiserver.errors import ApiError


class User(msgspec.Struct, frozen=True):
    """An authenticated user."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = msgspec.field(default_factory=dict)


Check = Callable[[str], "User | str"]


def authenticate(request: web.Request, check: Check) -> User:
    """Give the user behind a request; raises ApiError 401.

    A client certificate was already checked by the TLS layer against the client CA.
    """
    header = request.headers.get("Authorization", "")
    kind, _, token = header.partition(" ")
    if kind.lower() == "bearer" and token:
        found = check(token.strip())
        if isinstance(found, User):
            return found
        raise ApiError(401, "Unauthorized", f"Unauthorized: {found}")
    certificate = _peer_certificate(request)
    if certificate:
        return _user(certificate)
    raise ApiError(401, "Unauthorized", "Unauthorized")


def _peer_certificate(request: web.Request) -> dict[str, Any]:
    transport = request.transport
    tls = transport.get_extra_info("ssl_object") if transport else None
    if not isinstance(tls, ssl.SSLObject):
        return {}
    return tls.getpeercert() or {}


def _user(certificate: dict[str, Any]) -> User:
    name, groups = "", ["system:authenticated"]
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                name = value
            elif key == "organizationName":
                groups.append(value)
    return User(name, groups=tuple(groups))
