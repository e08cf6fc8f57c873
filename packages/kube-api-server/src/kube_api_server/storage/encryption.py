"""Encryption at rest: AES-256-GCM with keys from a file. The first key encrypts.

An encrypted value is a mark, `<key id>:`, a nonce of 12 bytes, and the ciphertext. The
object's key is authenticated with it, so that values cannot be swapped. The key file has one key
per line, `<id> <base64 of 32 bytes>`. To rotate keys, add a new first line and restart. Values
under other keys are then encrypted again. Remove the old line after the log reports completion.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kube_api_server.storage.names import Storage, StorageNames

NONCE = 12

ENCRYPTED_PREFIXES = ("/core/secrets/",)
"""Prefixes of the keys whose values are encrypted."""


class EncryptionError(Exception):
    """An invalid key file, or a value that none of its keys decrypts."""


class IdentityTransformer:
    """Stores values without encryption. Cannot read encrypted values."""

    def __init__(self, names: StorageNames) -> None:
        self._mark = names.encryption_mark.encode()

    def encrypt(self, key: str, data: bytes) -> bytes:  # noqa: ARG002
        """Return the stored form of `data`."""
        return data

    def decrypt(self, key: str, data: bytes) -> bytes:
        """Return the value of stored data. Raises EncryptionError."""
        if data.startswith(self._mark):
            raise EncryptionError(f"{key} is encrypted, but no key file is configured")
        return data

    def needs_reencryption(self, key: str, data: bytes) -> bool:  # noqa: ARG002
        """Return whether a value should be encrypted again."""
        return False


class AESGCMTransformer(IdentityTransformer):
    """Encrypts values of sensitive resources."""

    def __init__(self, keys: dict[str, bytes], names: StorageNames) -> None:
        super().__init__(names)
        self._first = next(iter(keys))
        self._ciphers = {name: AESGCM(key) for name, key in keys.items()}

    def encrypt(self, key: str, data: bytes) -> bytes:
        """Encrypt a value if its resource is sensitive."""
        if not key.startswith(ENCRYPTED_PREFIXES):
            return data
        nonce = os.urandom(NONCE)
        sealed = self._ciphers[self._first].encrypt(nonce, data, key.encode())
        return self._mark + self._first.encode() + b":" + nonce + sealed

    def decrypt(self, key: str, data: bytes) -> bytes:
        """Decrypt a value if it is encrypted. Raises EncryptionError."""
        if not data.startswith(self._mark):
            return data
        name, _, rest = data[len(self._mark) :].partition(b":")
        cipher = self._ciphers.get(name.decode(errors="replace"))
        if cipher is None:
            raise EncryptionError(
                f"{key} is encrypted with key {name!r}, which is not in the key file"
            )
        try:
            return cipher.decrypt(rest[:NONCE], rest[NONCE:], key.encode())
        except InvalidTag as error:
            raise EncryptionError(f"{key} cannot be decrypted with key {name!r}") from error

    def needs_reencryption(self, key: str, data: bytes) -> bool:
        """Return whether a value is not encrypted with the first key, but should be."""
        return key.startswith(ENCRYPTED_PREFIXES) and not data.startswith(
            self._mark + self._first.encode() + b":"
        )


def open_cipher(storage: Storage) -> IdentityTransformer:
    """Return the transformer of a storage. Raises EncryptionError for an invalid key file."""
    if storage.keys is None:
        return IdentityTransformer(storage.names)
    return load_keys(storage.keys, storage.names)


def load_keys(path: Path, names: StorageNames) -> AESGCMTransformer:
    """Load a key file. Raises EncryptionError."""
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
        raise EncryptionError(f"{path} contains no key")
    return AESGCMTransformer(keys, names)


def generate_key() -> str:
    """Return a new line for a key file."""
    return f"{os.urandom(4).hex()} {base64.b64encode(os.urandom(32)).decode()}"
