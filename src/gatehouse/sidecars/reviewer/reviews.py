"""Requests and responses of the review APIs. No I/O.

``authentication.k8s.io/v1`` ``TokenReview``, ``authorization.k8s.io/v1`` ``SubjectAccessReview``.
"""

from __future__ import annotations

import math
from typing import Literal, TypeVar

import msgspec

from gatehouse.sidecars.reviewer import user_headers
from gatehouse.sidecars.reviewer.impersonation import ImpersonationPermission
from gatehouse.sidecars.reviewer.user_headers import ReviewedUser

_Review = TypeVar("_Review")

TOKEN = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class InvalidReviewError(Exception):
    """A response that is not a valid review. The message contains the reason."""


class Verdict(msgspec.Struct, frozen=True):
    """Result of a review."""

    granted: bool
    headers: tuple[tuple[str, str], ...] = ()
    """Headers with the user, for a TokenReview."""
    reason: str = ""
    ends: float = math.inf
    """Unix time after which the verdict must not be used."""

    @property
    def weight(self) -> int:
        """Number of characters it contains."""
        return sum(len(name) + len(value) for name, value in self.headers) + len(self.reason)


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = ()
    extra: dict[str, tuple[str, ...]] | None = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _UserInfo = _UserInfo()


class _TokenReview(msgspec.Struct):
    kind: Literal["TokenReview"]
    status: _TokenStatus


class _AccessStatus(msgspec.Struct):
    allowed: bool
    denied: bool = False
    reason: str = ""


class _AccessReview(msgspec.Struct):
    kind: Literal["SubjectAccessReview"]
    status: _AccessStatus


def of_token(token: str) -> bytes:
    """Build a TokenReview. The audience is the server's own."""
    return msgspec.json.encode(
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
    )


def token_verdict(body: bytes, ends: float) -> Verdict:
    """Parse a TokenReview. ``ends`` is the expiry of the token. Raises InvalidReviewError."""
    status = _decoded(body, _TokenReview).status
    if not status.authenticated:
        return Verdict(False)
    info = status.user
    if not info.username:
        raise InvalidReviewError("TokenReview without a username")
    user = ReviewedUser(
        info.username,
        info.uid,
        tuple(group for group in info.groups or () if group),
        tuple((info.extra or {}).items()),
    )
    return Verdict(True, user_headers.to_headers(user), ends=ends)


def of_permission(client: ReviewedUser, needed: ImpersonationPermission) -> bytes:
    """Build a SubjectAccessReview of whether a client may impersonate something."""
    fields = {
        "verb": "impersonate",
        "group": needed.group,
        "version": "v1",
        "resource": needed.resource,
        "subresource": needed.subresource,
        "namespace": needed.namespace,
        "name": needed.name,
    }
    spec = {
        "user": client.name,
        "uid": client.uid,
        "groups": client.groups,
        "extra": dict(client.extra),
        "resourceAttributes": {key: value for key, value in fields.items() if value},
    }
    return msgspec.json.encode(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {key: value for key, value in spec.items() if value},
        }
    )


def access_verdict(body: bytes) -> Verdict:
    """Parse a SubjectAccessReview. Raises InvalidReviewError."""
    status = _decoded(body, _AccessReview).status
    return Verdict(status.allowed and not status.denied, reason=status.reason)


def _decoded(body: bytes, kind: type[_Review]) -> _Review:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidReviewError(f"invalid review: {error}") from error
