"""Checks of RSA keys that take no longer than the proxies need to load them."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers, RSAPublicKey

from gatehouse.dataplane.key_sizes import MAX_RSA_BITS

MIN_RSA_BITS = 2048
"""Minimum size of RSA keys that Envoy and, on its default security level, NGINX accept."""


def size_problem(key: object) -> str:
    """Return what is wrong with the size of a public key; empty for nothing and for other types."""
    bits = key.key_size if isinstance(key, RSAPublicKey) else MIN_RSA_BITS
    if MIN_RSA_BITS <= bits <= MAX_RSA_BITS:
        return ""
    return f"the RSA key must have {MIN_RSA_BITS} to {MAX_RSA_BITS} bits"


def is_consistent(private: RSAPrivateNumbers) -> bool:
    """Return whether the numbers of a private key fit each other.

    The primes are not tested: that takes seconds. With other factors only the handshakes of this
    key fail.
    """
    n, e = private.public_numbers.n, private.public_numbers.e
    p, q, d = private.p, private.q, private.d
    # Arithmetic with larger numbers would be slow.
    if min(p, q) < 3 or max(e, p, q, d, private.dmp1, private.dmq1, private.iqmp) >= n:
        return False
    return (
        p * q == n
        and n % 2 == d * e % (p - 1) == d * e % (q - 1) == private.iqmp * q % p == 1
        and (private.dmp1, private.dmq1) == (d % (p - 1), d % (q - 1))
    )
