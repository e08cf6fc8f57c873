"""Verification of passwords with the hash formats of NGINX's password files.

NGINX's own formats and those of the system's libcrypt are supported.

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
"""Bytes of a digest that make four characters, the highest first."""

_DATA_BYTES = 1 << 18
"""Larger than ``struct crypt_data`` in any C library."""


class UncheckableError(Exception):
    """An unsupported hash. The message contains the reason."""


def parse_password_file(text: bytes) -> dict[bytes, bytes]:
    """Parse lines ``name:hash``, optionally with ``:`` and a comment. The first of equal names is
    used."""
    hashes: dict[bytes, bytes] = {}
    for line in text.splitlines():
        name, _, rest = line.strip().partition(b":")
        if name and not name.startswith(b"#"):
            hashes.setdefault(name, rest if rest.startswith(b"{PLAIN}") else rest.split(b":")[0])
    return hashes


def matches_hash(hashed: bytes, password: bytes) -> bool:
    """Return whether a password has that hash. The time depends on the strength of the hash.

    Raises UncheckableError.
    """
    try:
        return hmac.compare_digest(_hash_like(hashed, password), hashed)
    except binascii.Error as error:
        raise UncheckableError("invalid base64 in a hash") from error


def _hash_like(hashed: bytes, password: bytes) -> bytes:
    """Hash a password in the format and with the salt of ``hashed``."""
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
    """Hash in Apache's default format (``htpasswd``): 1000 rounds of MD5."""
    length = len(password)
    inner = _md5(password + salt + password)
    content = password + _APR1 + salt + (inner * (length // 16 + 1))[:length]
    while length:
        content += b"\0" if length & 1 else password[:1]
        length >>= 1
    digest = _md5(content)
    for round_ in range(1000):
        content = password if round_ & 1 else digest
        content += salt if round_ % 3 else b""
        content += password if round_ % 7 else b""
        content += digest if round_ & 1 else password
        digest = _md5(content)
    groups = [(digest[a] << 16 | digest[b] << 8 | digest[c], 4) for a, b, c in _ORDER]
    text = b"".join(_encoded(value, size) for value, size in (*groups, (digest[11], 2)))
    return _APR1 + salt + b"$" + text


def _encoded(value: int, size: int) -> bytes:
    return bytes(_ALPHABET[value >> 6 * position & 63] for position in range(size))


def _crypt(password: bytes, hashed: bytes) -> bytes:
    """Hash with the system's C library: bcrypt, SHA-512 and its other formats."""
    library = _library()
    if library is None:
        raise UncheckableError("libcrypt not found")
    if b"\0" in password:
        # The library would ignore everything after it.
        return b""
    data = ctypes.create_string_buffer(_DATA_BYTES)
    result = library.crypt_r(password, hashed, data)
    if result is None or result.startswith(b"*"):
        raise UncheckableError("hash format not supported by libcrypt")
    return bytes(result)


@functools.cache
def _library() -> Any:
    for name in ("libcrypt.so.1", "libcrypt.so.2", None):
        try:
            library = ctypes.CDLL(name)
            library.crypt_r.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p)
            library.crypt_r.restype = ctypes.c_char_p
        except (OSError, AttributeError):
            continue
        return library
    return None
