"""Minimum TLS version and cipher suites of all TLS servers.

| server | versions |
| --- | --- |
| API server (:mod:`ssl`) | TLS 1.3, and TLS 1.2 with :data:`CIPHER_SUITES` |
| agents, external machines (gRPC) | TLS 1.3 |
| rate limit service (gRPC) | TLS 1.3, and TLS 1.2 with gRPC's suites, which Envoy uses by default |

gRPC's suites of TLS 1.2 are the same without ChaCha20. Its BoringSSL has neither renegotiation by
clients nor compression.
"""

from __future__ import annotations

import os
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


def require_tls_1_3_of_grpc() -> None:
    """Make all gRPC channels and servers of this process use TLS 1.3, if gRPC is not imported yet.

    gRPC for Python has no option for that (its issue 37305) except the suites of TLS 1.2. The suite
    here needs a pre-shared key. There is none, so every TLS 1.2 handshake fails.
    """
    os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-CHACHA20-POLY1305"
