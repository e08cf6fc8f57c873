"""TokenReviews: requests and results. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gatehouse.apis.resources import TOKEN_REVIEWS
from kube_base.types.objects import Object


class TokenReviewStatus(msgspec.Struct, frozen=True):
    """Result of a TokenReview."""

    authenticated: bool
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}
    audiences: tuple[str, ...] = ()
    error: str = ""


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _ReviewStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: tuple[str, ...] = ()
    error: str = ""


class Review(msgspec.Struct):
    """Response to a review."""

    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


def review_request(token: str, audiences: Sequence[str]) -> Object:
    """Return the body of a review."""
    return {
        "apiVersion": TOKEN_REVIEWS.api_version,
        "kind": TOKEN_REVIEWS.kind,
        "spec": {"token": token, "audiences": [*audiences]},
    }


def review_status(review: Review, audiences: Sequence[str]) -> TokenReviewStatus:
    """Return the result of a review for one of ``audiences``."""
    result = review.status
    # An API server that ignores audiences responds without them. Then the token may be for any
    # audience (authentication.k8s.io/v1 TokenReviewStatus.audiences).
    audience_matches = not audiences or not {*audiences}.isdisjoint(result.audiences)
    return TokenReviewStatus(
        authenticated=result.authenticated and audience_matches,
        username=result.user.username,
        uid=result.user.uid,
        groups=result.user.groups,
        extra=result.user.extra,
        audiences=result.audiences,
        error=result.error or ("" if audience_matches else "the token is for another audience"),
    )
