"""ServiceAccount tokens: signed, bound, for an audience, for a time."""

from __future__ import annotations

import hashlib
import time
import uuid
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gatehouse.apis import resources
from gatehouse.apiserver import errors, registry
from gatehouse.apiserver.authentication import User
from gatehouse.apiserver.errors import Cause
from gatehouse.apiserver.storage.store import Store

ISSUER = "https://kubernetes.default.svc"
API_AUDIENCE = ISSUER

DEFAULT_SECONDS, LEAST_SECONDS, MOST_SECONDS = 3600, 600, 86400

Object = dict[str, Any]


class Tokens:
    """Signs and checks tokens; one key for both."""

    def __init__(self, key: Path, store: Store) -> None:
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{key} holds no EC key")
        self._key = loaded
        self._store = store
        public = loaded.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self._id = hashlib.sha256(public).hexdigest()[:16]

    def issue(self, account: Object, spec: Object) -> tuple[str, int]:
        """Sign a token for a ServiceAccount as a TokenRequest's ``spec`` asks; gives its end."""
        metadata = account["metadata"]
        now = int(time.time())
        asked = spec.get("expirationSeconds") or DEFAULT_SECONDS
        if not isinstance(asked, int) or asked < LEAST_SECONDS:
            message = f"Invalid value: {asked!r}: may not specify a duration less than 10 minutes"
            cause = Cause("FieldValueInvalid", message, "spec.expirationSeconds")
            raise errors.invalid("TokenRequest", "", metadata["name"], [cause])
        ends = now + min(asked, MOST_SECONDS)
        claims: Object = {
            "namespace": metadata["namespace"],
            "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
        }
        bound = spec.get("boundObjectRef")
        if bound:
            self._exists(metadata["namespace"], bound)
            claims[bound["kind"].lower()] = {"name": bound["name"], "uid": bound.get("uid", "")}
        body = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
            "aud": spec.get("audiences") or [API_AUDIENCE],
            "exp": ends,
            "iat": now,
            "nbf": now,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": claims,
        }
        return jwt.encode(body, self._key, algorithm="ES256", headers={"kid": self._id}), ends

    def _exists(self, namespace: str, bound: Object) -> None:
        """Raise ApiError unless the object that a token is to be bound to is there."""
        served = registry.of(resources.SECRETS if bound["kind"] == "Secret" else resources.PODS)
        entry = self._store.latest(served.key(namespace, bound["name"]))
        if entry is None:
            raise errors.not_found(served.resource.plural, "", bound["name"])
        if bound.get("uid", entry.value["metadata"]["uid"]) != entry.value["metadata"]["uid"]:
            why = "the UID in the bound object reference does not match"
            raise errors.conflict(served.resource.plural, "", bound["name"], why)

    def check(self, token: str, audiences: list[str]) -> tuple[User, list[str]] | str:
        """Give the user and the audiences in common, or why the token is not good."""
        try:
            claims = jwt.decode(
                token,
                self._key.public_key(),
                algorithms=["ES256"],
                issuer=ISSUER,
                audience=audiences or [API_AUDIENCE],
                leeway=5,
            )
        except jwt.PyJWTError as error:
            return f"the token is not valid: {error}"
        own = claims.get("kubernetes.io", {})
        namespace, account = own.get("namespace", ""), own.get("serviceaccount", {})
        found = self._store.get(
            registry.of(resources.SERVICE_ACCOUNTS).key(namespace, account.get("name", ""))
        )
        if found is None or found.value["metadata"]["uid"] != account.get("uid"):
            return "the token's ServiceAccount does not exist any more"
        extra: dict[str, list[str]] = {}
        pod = own.get("pod")
        if pod is not None:
            entry = self._store.get(registry.of(resources.PODS).key(namespace, pod["name"]))
            if entry is None or entry.value["metadata"]["uid"] != pod["uid"]:
                return "the Pod that the token is bound to does not exist any more"
            extra["authentication.kubernetes.io/pod-name"] = [pod["name"]]
            extra["authentication.kubernetes.io/pod-uid"] = [pod["uid"]]
        groups = (
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        )
        user = User(claims["sub"], account["uid"], groups, extra)
        asked = audiences or [API_AUDIENCE]
        return user, [audience for audience in claims["aud"] if audience in asked]
