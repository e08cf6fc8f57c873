"""Encryption at rest: AES-256-GCM with keys from a file, the first of which seals.

A sealed value is ``gatehouse:aesgcm:<key id>:``, a nonce of 12 bytes, and the ciphertext; the
object's key is authenticated with it, so that values cannot change places. The key file has one
key per line, ``<id> <base64 of 32 bytes>``; to rotate, put a new line on top and restart: what is
sealed with another key is written anew, and the old line can go when the log says so.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MARK = b"gatehouse:aesgcm:"
NONCE = 12

ENCRYPTED_PREFIXES = ("/core/secrets/",)
"""Prefixes of the keys whose values are sealed."""


class EncryptionError(Exception):
    """A key file that is no good, or a value that none of its keys opens."""


class IdentityTransformer:
    """Values lie as they are; sealed ones cannot be read."""

    def encrypt(self, key: str, data: bytes) -> bytes:  # noqa: ARG002
        """Give what to write for ``data``."""
        return data

    def decrypt(self, key: str, data: bytes) -> bytes:
        """Give the value that was sealed. Raises EncryptionError."""
        if data.startswith(MARK):
            raise EncryptionError(f"{key} is sealed, and no key file was given")
        return data

    def needs_reencryption(self, key: str, data: bytes) -> bool:  # noqa: ARG002
        """Whether a value should be written anew."""
        return False


class AESGCMTransformer(IdentityTransformer):
    """Values of sensitive resources are encrypted."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        self._first = next(iter(keys))
        self._ciphers = {name: AESGCM(key) for name, key in keys.items()}

    def encrypt(self, key: str, data: bytes) -> bytes:
        """Encrypt what belongs to a sensitive resource."""
        if not key.startswith(ENCRYPTED_PREFIXES):
            return data
        nonce = os.urandom(NONCE)
        sealed = self._ciphers[self._first].encrypt(nonce, data, key.encode())
        return MARK + self._first.encode() + b":" + nonce + sealed

    def decrypt(self, key: str, data: bytes) -> bytes:
        """Decrypt what was encrypted. Raises EncryptionError."""
        if not data.startswith(MARK):
            return data
        name, _, rest = data[len(MARK) :].partition(b":")
        cipher = self._ciphers.get(name.decode(errors="replace"))
        if cipher is None:
            raise EncryptionError(f"{key} is sealed with a key that the key file lacks: {name!r}")
        try:
            return cipher.decrypt(rest[:NONCE], rest[NONCE:], key.encode())
        except InvalidTag as error:
            raise EncryptionError(f"{key} cannot be opened with key {name!r}") from error

    def needs_reencryption(self, key: str, data: bytes) -> bool:
        """Whether a value lies there in the open, or sealed with another than the first key."""
        return key.startswith(ENCRYPTED_PREFIXES) and not data.startswith(
            MARK + self._first.encode() + b":"
        )


def load(path: Path) -> AESGCMTransformer:
    """Read a key file. Raises EncryptionError."""
    keys: dict[str, bytes] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise EncryptionError(f"{path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.strip().partition(" ")
        try:
            key = base64.b64decode(text.strip(), validate=True)
        except binascii.Error as error:
            raise EncryptionError(f"{path}, line {number}: not base64") from error
        if len(key) != 32 or not name or ":" in name:
            message = "expected an id without colon and the base64 of 32 bytes"
            raise EncryptionError(f"{path}, line {number}: {message}")
        keys[name] = key
    if not keys:
        raise EncryptionError(f"{path} holds no key")
    return AESGCMTransformer(keys)


def generate() -> str:
    """Give a line for a key file."""
    return f"{os.urandom(4).hex()} {base64.b64encode(os.urandom(32)).decode()}"
