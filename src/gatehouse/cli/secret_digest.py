"""Digests that stand for secrets in configurations. No I/O."""

from __future__ import annotations

import hashlib
import hmac
import secrets

import msgspec

from gatehouse.cli.redaction import REDACTED

_DIGITS = 12
"""Length of a digest in hexadecimal digits. Two of 10,000 secrets have the same one with a
probability of less than one in a million."""


class SecretDigest(msgspec.Struct, frozen=True):
    """Digests that are equal for equal secrets, with a key that a command draws for each run.

    So `--diff` shows that a secret differs. A text that its reader passes on does not help to guess
    a weak password, because the key is not part of it.
    """

    key: str

    @classmethod
    def random(cls) -> SecretDigest:
        """Return digests that no other run has."""
        return cls(secrets.token_hex(16))

    def mark(self, content: bytes, size: int | None = None) -> str:
        """Return the text that stands for a secret, or for its hash with its size in bytes."""
        digest = hmac.new(self.key.encode(), content, hashlib.sha256).hexdigest()[:_DIGITS]
        length = "" if size is None else f"{size} bytes, "
        return f"{REDACTED} ({length}digest {digest})"
