"""Passwords and their hashes, as in files for NGINX: which it knows itself, and the system's.

https://nginx.org/en/docs/http/ngx_http_auth_basic_module.html
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import functools
import hashlib
import hmac
from typing import Any

_APR1 = b"$apr1$"
_ALPHABET = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ORDER = ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5))
"""Which bytes of a digest make four characters of it, the highest first."""

_DATA_BYTES = 1 << 18
"""More than ``struct crypt_data`` has in any C library."""


class UncheckableError(Exception):
    """A hash that nobody here knows; the message says why."""


def users(text: bytes) -> dict[bytes, bytes]:
    """Read lines ``name:hash``, perhaps with ``:`` and a comment; of one name the first counts."""
    found: dict[bytes, bytes] = {}
    for line in text.splitlines():
        name, _, rest = line.strip().partition(b":")
        if name and not name.startswith(b"#"):
            found.setdefault(name, rest if rest.startswith(b"{PLAIN}") else rest.split(b":")[0])
    return found


def matches(hashed: bytes, password: bytes) -> bool:
    """Whether a password has that hash; takes as long as the hash is strong.

    Raises UncheckableError.
    """
    try:
        return hmac.compare_digest(_made(hashed, password), hashed)
    except binascii.Error as error:
        raise UncheckableError("a hash is not base64") from error


def _made(hashed: bytes, password: bytes) -> bytes:
    """Hash a password like ``hashed``."""
    if hashed.startswith(b"{PLAIN}"):
        return b"{PLAIN}" + password
    if hashed.startswith(b"{SHA}"):
        return b"{SHA}" + base64.b64encode(_sha1(password))
    if hashed.startswith(b"{SSHA}"):
        salt = base64.b64decode(hashed.removeprefix(b"{SSHA}"))[20:]
        return b"{SSHA}" + base64.b64encode(_sha1(password + salt) + salt)
    if hashed.startswith(_APR1):
        return _apr1(password, hashed.removeprefix(_APR1).partition(b"$")[0][:8])
    return _crypt(password, hashed)


def _sha1(content: bytes) -> bytes:
    return hashlib.sha1(content, usedforsecurity=False).digest()


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()


def _apr1(password: bytes, salt: bytes) -> bytes:
    """Hash as Apache's ``htpasswd`` does without a word: MD5, a thousand times over."""
    length = len(password)
    inner = _md5(password + salt + password)
    content = password + _APR1 + salt + (inner * (length // 16 + 1))[:length]
    while length:
        content += b"\0" if length & 1 else password[:1]
        length >>= 1
    digest = _md5(content)
    for turn in range(1000):
        content = password if turn & 1 else digest
        content += salt if turn % 3 else b""
        content += password if turn % 7 else b""
        content += digest if turn & 1 else password
        digest = _md5(content)
    groups = [(digest[a] << 16 | digest[b] << 8 | digest[c], 4) for a, b, c in _ORDER]
    text = b"".join(_encoded(value, size) for value, size in (*groups, (digest[11], 2)))
    return _APR1 + salt + b"$" + text


def _encoded(value: int, size: int) -> bytes:
    return bytes(_ALPHABET[value >> 6 * place & 63] for place in range(size))


def _crypt(password: bytes, hashed: bytes) -> bytes:
    """Hash as the system's C library does: bcrypt, SHA-512 and what else it knows."""
    library = _library()
    if library is None:
        raise UncheckableError("there is no libcrypt here")
    if b"\0" in password:
        # The library would not look behind it.
        return b""
    data = ctypes.create_string_buffer(_DATA_BYTES)
    made = library.crypt_r(password, hashed, data)
    if made is None or made.startswith(b"*"):
        raise UncheckableError("libcrypt does not know a hash")
    return bytes(made)


@functools.cache
def _library() -> Any:
    for name in ("libcrypt.so.1", "libcrypt.so.2", None):
        try:
            found = ctypes.CDLL(name)
            found.crypt_r.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p)
            found.crypt_r.restype = ctypes.c_char_p
        except (OSError, AttributeError):
            continue
        return found
    return None
