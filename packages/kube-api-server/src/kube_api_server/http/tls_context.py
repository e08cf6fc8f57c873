"""Minimum TLS version and cipher suites of the API server."""

from __future__ import annotations

import ssl
from pathlib import Path

CIPHER_SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Suites of TLS 1.2 with forward secrecy and authenticated encryption. TLS 1.3 has no others."""


def server_context(cert: Path, key: Path) -> ssl.SSLContext:
    """Return the context of a server with a certificate.

    Raises OSError if a file cannot be read, or ssl.SSLError if the files do not match.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHER_SUITES)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.load_cert_chain(cert, key)
    return context
