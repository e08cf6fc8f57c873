"""Minimum TLS version of the servers that gRPC has.

| server | versions |
| --- | --- |
| agents, external machines | TLS 1.3 |
| rate limit service | TLS 1.3, and TLS 1.2 with gRPC's suites, which Envoy uses by default |

gRPC's suites of TLS 1.2 have forward secrecy and authenticated encryption. Its BoringSSL has
neither renegotiation by clients nor compression.
"""

from __future__ import annotations

import os


def require_tls_1_3_of_grpc() -> None:
    """Make all gRPC channels and servers of this process use TLS 1.3, if gRPC is not imported yet.

    gRPC for Python has no option for that (its issue 37305) except the suites of TLS 1.2. The suite
    here needs a pre-shared key. There is none, so every TLS 1.2 handshake fails.
    """
    os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-CHACHA20-POLY1305"
