"""Signing keys of ServiceAccount tokens: stored in a Secret, shared by all servers, rotated.

The newest key signs. Older keys verify until every token that they signed has expired.
"""

from __future__ import annotations

import base64
import hashlib
import time

import jwt
import structlog
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kube_base.types.objects import Object

log = structlog.get_logger("apiserver")

NAMESPACE = "kube-system"
"""Namespace of the Secret."""

ROTATE_SECONDS = 30 * 86400
MAX_TOKEN_SECONDS = 86400
"""Maximum lifetime of a token in seconds."""


class SigningKey:
    """A key pair."""

    def __init__(self, pem: bytes, created: int) -> None:
        loaded = serialization.load_pem_private_key(pem, None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise TypeError("not an EC key")
        self.pem, self.created, self.private = pem, created, loaded
        self.public = loaded.public_key()
        der = self.public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.id = base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")

    def jwk(self) -> Object:
        """Return the public key in the form of RFC 7517."""
        key: Object = jwt.algorithms.ECAlgorithm.to_jwk(self.public, as_dict=True)
        return {"use": "sig", "kid": self.id, "alg": "ES256", **key}


class Keys:
    """Current keys, newest first."""

    def __init__(self) -> None:
        self._keys: list[SigningKey] = []

    @property
    def empty(self) -> bool:
        """Return whether no key exists yet."""
        return not self._keys

    @property
    def signing(self) -> SigningKey:
        """Key that signs new tokens."""
        return self._keys[0]

    def find(self, identity: str) -> SigningKey | None:
        """Return a key by its ID; None if it is unknown."""
        return next((key for key in self._keys if key.id == identity), None)

    def jwks(self) -> Object:
        """Return all public keys as a JSON Web Key Set."""
        return {"keys": [key.jwk() for key in self._keys]}

    def load(self, secret: Object) -> None:
        """Load the keys of the Secret. A Secret without a valid key changes nothing."""
        keys = []
        for name, data in (secret.get("data") or {}).items():
            created = name.partition(".")[0]
            if not created.isdecimal():
                continue
            try:
                keys.append(SigningKey(base64.b64decode(data), int(created)))
            except (ValueError, TypeError) as error:
                secret_name = (secret.get("metadata") or {}).get("name")
                log.warning("token key not usable", secret=f"{NAMESPACE}/{secret_name}", key=name,
                    error=str(error))  # fmt: skip
        self._keys = sorted(keys, key=lambda key: -key.created) or self._keys

    def due(self, now: float) -> bool:
        """Return whether a new key is due."""
        return not self._keys or now - self._keys[0].created > ROTATE_SECONDS


def with_new_key(secret: Object, now: int, pem: bytes | None = None) -> Object:
    """Return the Secret with a new key and without keys whose tokens have all expired."""
    data = dict(secret.get("data") or {})
    created_at = {name: int(age) for name in data if (age := name.partition(".")[0]).isdecimal()}
    for name, created in created_at.items():
        newer = [age for age in created_at.values() if age > created]
        if newer and now - min(newer) > MAX_TOKEN_SECONDS:
            del data[name]
    data[f"{now}.pem"] = base64.b64encode(pem or new_key()).decode()
    return {**secret, "data": data}


def new_key() -> bytes:
    """Generate a key in PEM."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def empty_secret(name: str, secret_type: str) -> Object:
    """Return the Secret without keys."""
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "type": secret_type, "data": {}}


def clock() -> int:
    """Return the current time in seconds since 1970."""
    return int(time.time())
