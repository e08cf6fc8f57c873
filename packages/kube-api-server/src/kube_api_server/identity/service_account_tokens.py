"""ServiceAccount tokens: signed, optionally bound to an object, with audiences and an expiry.

https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin
"""

from __future__ import annotations

import uuid
from collections import OrderedDict

import jwt

from kube_api_server import errors
from kube_api_server.causes import invalid_cause
from kube_api_server.identity.signing_keys import MAX_TOKEN_SECONDS, Keys, clock
from kube_api_server.identity.users import AUTHENTICATED, User
from kube_api_server.storage.entries import StoredEntry
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object

ISSUER = "https://kubernetes.default.svc"
API_AUDIENCE = ISSUER
DEFAULT_SECONDS, MIN_SECONDS = 3600, 600
EXPIRY_LEEWAY_SECONDS = 60
"""Seconds for which an expired token is accepted, as in Kubernetes."""

CLOCK_SKEW_SECONDS = 300
"""Tolerated difference in seconds between the clocks of an issuer and a verifier.

Tokens may be used this long before they were issued. Certificates have the same tolerance.
"""

_CACHE_SIZE = 10_000
"""Maximum number of verified tokens in the cache. Their signatures are not verified again."""


_BINDABLE = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


class ServiceAccountTokens:
    """Signs and verifies tokens."""

    def __init__(self, keys: Keys, store: ObjectStore) -> None:
        self._keys, self._store = keys, store
        self._verified: OrderedDict[str, Object] = OrderedDict()

    def issue(self, account: Object, spec: Object) -> tuple[str, int]:
        """Sign a token for a ServiceAccount by the `spec` of a TokenRequest.

        Return the token and its expiry in seconds since 1970. Raises ApiError.
        """
        metadata, now = account["metadata"], clock()
        requested = spec.get("expirationSeconds") or DEFAULT_SECONDS
        if not isinstance(requested, int) or requested < MIN_SECONDS:
            why = "may not specify a duration less than 10 minutes"
            cause = invalid_cause("spec.expirationSeconds", requested, why)
            kind, group = "TokenRequest", "authentication.k8s.io"
            raise errors.invalid_error(kind, group, metadata["name"], [cause])
        expires = now + min(requested, MAX_TOKEN_SECONDS)
        claims: Object = {
            "namespace": metadata["namespace"],
            "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
        }
        bound = spec.get("boundObjectRef")
        if bound:
            entry = self._bound(metadata["namespace"], bound)
            uid = entry.value["metadata"]["uid"]
            claims[bound["kind"].lower()] = {"name": bound["name"], "uid": uid}
        body = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
            "aud": spec.get("audiences") or [API_AUDIENCE],
            "exp": expires,
            "iat": now,
            "nbf": now - CLOCK_SKEW_SECONDS,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": claims,
        }
        key = self._keys.signing
        return jwt.encode(body, key.private, algorithm="ES256", headers={"kid": key.id}), expires

    def _bound(self, namespace: str, bound: Object) -> StoredEntry:
        """Return the object to which a token shall be bound. Raises ApiError."""
        kind, name = bound.get("kind", ""), bound.get("name", "")
        plural = _BINDABLE.get(kind)
        if plural is None:
            raise errors.bad_request(f"cannot bind token for serviceaccount to {kind!r} object")
        entry = self._store.latest(_key(plural, namespace, name))
        if entry is None:
            raise errors.not_found_error(plural, "", name)
        uid = entry.value["metadata"]["uid"]
        if bound.get("uid", uid) != uid:
            why = (
                f"the UID in the bound object reference ({bound['uid']}) does not match the UID in "
                f"record ({uid}). The object might have been deleted and then recreated"
            )
            raise errors.conflict(plural, "", name, why)
        return entry

    def check(self, token: str, audiences: list[str]) -> tuple[User, list[str]] | str:
        """Return the user and the common audiences, or the reason for rejection."""
        try:
            claims = self._claims(token)
        except jwt.PyJWTError as error:
            return f"the token is not valid: {error}"
        accepted = audiences or [API_AUDIENCE]
        common = [audience for audience in claims["aud"] if audience in accepted]
        if not common:
            return f"token audiences {claims['aud']} is invalid for the target audiences {accepted}"
        kubernetes_claims = claims.get("kubernetes.io") or {}
        namespace, account = (
            kubernetes_claims.get("namespace", ""),
            kubernetes_claims.get("serviceaccount") or {},
        )
        if not self._alive("serviceaccounts", namespace, account):
            return "the ServiceAccount of the token does not exist"
        extra: dict[str, list[str]] = {
            "authentication.kubernetes.io/credential-id": [f"JTI={claims.get('jti', '')}"]
        }
        for kind, plural in _BINDABLE.items():
            bound = kubernetes_claims.get(kind.lower())
            if bound is None:
                continue
            if not self._alive(plural, namespace, bound):
                return f"the {kind} that the token is bound to does not exist"
            if kind != "Secret":
                label = f"authentication.kubernetes.io/{kind.lower()}"
                extra |= {f"{label}-name": [bound["name"]], f"{label}-uid": [bound["uid"]]}
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        return User(claims["sub"], account["uid"], groups, extra), common

    def _alive(self, plural: str, namespace: str, reference: Object) -> bool:
        entry = self._store.get(_key(plural, namespace, str(reference.get("name", ""))))
        if entry is None:
            return False
        return bool(entry.value["metadata"]["uid"] == reference.get("uid"))

    def _claims(self, token: str) -> Object:
        """Return the verified claims of a token that this cluster issued. Raises PyJWTError."""
        known = self._verified.get(token)
        if known is not None and known["exp"] + EXPIRY_LEEWAY_SECONDS > clock():
            self._verified.move_to_end(token)
            return known
        header = jwt.get_unverified_header(token)
        key = self._keys.find(str(header.get("kid", "")))
        if key is None:
            raise jwt.InvalidTokenError("unknown signing key")
        claims: Object = jwt.decode(
            token,
            key.public,
            algorithms=["ES256"],
            issuer=ISSUER,
            leeway=EXPIRY_LEEWAY_SECONDS,
            options={
                "verify_aud": False,
                "verify_iat": False,
                "verify_nbf": False,
                "require": ["exp", "iat", "sub", "aud"],
            },
        )
        if max(claims["iat"], claims.get("nbf", 0)) > clock() + CLOCK_SKEW_SECONDS:
            raise jwt.ImmatureSignatureError("issued in the future: check the clocks")
        self._verified[token] = claims
        if len(self._verified) > _CACHE_SIZE:
            self._verified.popitem(last=False)
        return claims


def _key(plural: str, namespace: str, name: str) -> str:
    return f"/core/{plural}/{name}" if plural == "nodes" else f"/core/{plural}/{namespace}/{name}"
