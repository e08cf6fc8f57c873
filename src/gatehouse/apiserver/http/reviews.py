"""Requests that are answered and not kept: TokenReview, SelfSubjectReview, TokenRequest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gatehouse.apiserver.authentication import User
from gatehouse.apiserver.tokens import API_AUDIENCE, Tokens

Object = dict[str, Any]


def token_review(body: Object, tokens: Tokens) -> Object:
    """Say whose token it is, and for which of the audiences asked for."""
    spec = body.get("spec") or {}
    audiences = list(spec.get("audiences") or [API_AUDIENCE])
    found = tokens.check(str(spec.get("token", "")), audiences)
    status: Object = {"authenticated": False}
    if isinstance(found, str):
        status["error"] = found
    else:
        status = {"authenticated": True, "user": _user(found[0]), "audiences": found[1]}
    return {**body, "metadata": body.get("metadata") or {}, "status": status}


def self_subject_review(body: Object, user: User) -> Object:
    """Say who asks."""
    metadata = {"creationTimestamp": None}
    return {**body, "metadata": metadata, "status": {"userInfo": _user(user)}}


def token_request(body: Object, account: Object, tokens: Tokens) -> Object:
    """Sign a token for a ServiceAccount."""
    token, ends = tokens.issue(account, body.get("spec") or {})
    moment = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": account["metadata"]["name"],
            "namespace": account["metadata"]["namespace"],
        },
        "spec": body.get("spec") or {},
        "status": {"token": token, "expirationTimestamp": moment},
    }


def _user(user: User) -> Object:
    return {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        **({"extra": user.extra} if user.extra else {}),
    }
