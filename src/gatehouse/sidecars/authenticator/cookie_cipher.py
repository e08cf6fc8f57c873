"""Authenticated encryption of cookies, which browsers can neither read nor change. No I/O."""

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
"""Size of the nonce in bytes (NIST SP 800-38D)."""


class CookieCipher:
    """Encrypts with a key derived from a shared secret, so that no state is stored."""

    def __init__(self, secret: bytes, *identity: str) -> None:
        """``identity`` names the owner; ciphertexts of other owners cannot be decrypted."""
        self._secret = secret
        self._info = "\0".join(identity).encode()

    @cached_property
    def _cipher(self) -> AESGCM:
        # Derived on demand: with many secrets, starts and reloads would wait for all of them.
        key = HKDF(hashes.SHA256(), 32, None, self._info).derive(_stretch(self._secret))
        return AESGCM(key)

    def encrypt(self, purpose: str, content: bytes) -> str:
        """Encrypt ``content`` as cookie text that can be decrypted only for the same purpose."""
        nonce = os.urandom(_NONCE)
        encrypted = nonce + self._cipher.encrypt(nonce, content, purpose.encode())
        return base64.urlsafe_b64encode(encrypted).decode().rstrip("=")

    def decrypt(self, purpose: str, text: str) -> bytes | None:
        """Return the decrypted content, or None if the text is invalid or for another purpose."""
        try:
            encrypted = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
            return self._cipher.decrypt(encrypted[:_NONCE], encrypted[_NONCE:], purpose.encode())
        except (ValueError, InvalidTag):
            return None


@lru_cache(maxsize=256)
def _stretch(secret: bytes) -> bytes:
    # Any holder of a cookie can test secrets on it. 0.05 s per test protects short secrets from
    # guessing.
    return Scrypt(b"gatehouse authenticator", 32, 1 << 14, 8, 1).derive(secret)
