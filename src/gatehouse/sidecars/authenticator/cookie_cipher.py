"""Sealing: what a browser keeps for us, and can neither read nor change. Pure."""

from __future__ import annotations

import base64
import os
from functools import cached_property, lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

_NONCE = 12
"""Bytes (NIST SP 800-38D)."""


class CookieCipher:
    """Seals with a key that every holder of a secret has, without anything being stored."""

    def __init__(self, secret: bytes, *identity: str) -> None:
        """``identity``: whose seal it is; the seals of others do not open."""
        self._secret = secret
        self._info = "\0".join(identity).encode()

    @cached_property
    def _cipher(self) -> AESGCM:
        # Only when it is needed: with many secrets a start, and a reload, would wait for them all.
        key = HKDF(hashes.SHA256(), 32, None, self._info).derive(_stretched(self._secret))
        return AESGCM(key)

    def encrypt(self, purpose: str, content: bytes) -> str:
        """Give text for a cookie, that only opens for the same purpose."""
        nonce = os.urandom(_NONCE)
        sealed = nonce + self._cipher.encrypt(nonce, content, purpose.encode())
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def decrypt(self, purpose: str, text: str) -> bytes | None:
        """Give what was sealed; None if it was not, or for something else."""
        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], purpose.encode())
        except (ValueError, InvalidTag):
            return None


@lru_cache(maxsize=256)
def _stretched(secret: bytes) -> bytes:
    # Who holds a cookie can try secrets on it: 0.05 s for each keeps short ones from being guessed.
    return Scrypt(b"gatehouse authenticator", 32, 1 << 14, 8, 1).derive(secret)
