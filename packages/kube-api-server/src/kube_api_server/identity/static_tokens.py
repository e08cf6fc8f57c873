"""Tokens that do not belong to ServiceAccounts: a token file, and bootstrap tokens.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#static-token-file
https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens
"""

from __future__ import annotations

import base64
import csv
import hmac
import re
from datetime import UTC, datetime
from pathlib import Path

from kube_api_server.identity.users import AUTHENTICATED, User
from kube_api_server.objects import timestamps
from kube_api_server.storage.store import ObjectStore

BOOTSTRAP = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
BOOTSTRAP_TYPE = "bootstrap.kubernetes.io/token"
_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")


class TokenFileError(Exception):
    """An unreadable token file. The message names the line."""


def load_tokens(path: Path) -> dict[str, User]:
    """Load `token,user,uid,"group,group"` lines. Raises TokenFileError."""
    users: dict[str, User] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if not row:
                    continue
                if len(row) < 3 or not row[0].strip() or not row[1].strip():
                    raise TokenFileError(f'{path}, line {number}: expected token,user,uid,"groups"')
                groups = [g.strip() for g in row[3].split(",")] if len(row) > 3 and row[3] else []
                user = User(row[1].strip(), row[2].strip(), (*groups, AUTHENTICATED))
                users[row[0].strip()] = user
    except OSError as error:
        raise TokenFileError(f"{path}: {error.strerror}") from error
    return users


def find_user(tokens: dict[str, User], token: str) -> User | None:
    """Return the user of a token; None if it is unknown. Compares in constant time."""
    encoded, result = token.encode(), None
    for known, user in tokens.items():
        if hmac.compare_digest(known.encode(), encoded):
            result = user
    return result


def bootstrap_token_user(store: ObjectStore, token: str) -> User | str:
    """Return the user of a bootstrap token, or the reason for rejection."""
    parts = BOOTSTRAP.fullmatch(token)
    if parts is None:
        return "not a bootstrap token"
    identity, secret = parts[1], parts[2]
    entry = store.get(f"/core/secrets/kube-system/bootstrap-token-{identity}")
    if entry is None or entry.value.get("type") != BOOTSTRAP_TYPE:
        return "bootstrap token not found"
    if entry.value["metadata"].get("deletionTimestamp"):
        return "the bootstrap token is being deleted"
    data = {key: base64.b64decode(v) for key, v in (entry.value.get("data") or {}).items()}
    if data.get("token-id", b"").decode() != identity or not hmac.compare_digest(
        data.get("token-secret", b""), secret.encode()
    ):
        return "the bootstrap token is invalid"
    if data.get("usage-bootstrap-authentication") != b"true":
        return "the bootstrap token is not allowed for authentication"
    ends = data.get("expiration")
    if ends:
        moment = timestamps.parse_time(ends.decode(errors="replace"))
        if moment is None or moment < datetime.now(UTC):
            return "the bootstrap token has expired"
    extra = data.get("auth-extra-groups", b"").decode()
    groups = [group for group in extra.split(",") if _GROUP.fullmatch(group)]
    return User(
        f"system:bootstrap:{identity}",
        groups=("system:bootstrappers", *groups, AUTHENTICATED),
    )
