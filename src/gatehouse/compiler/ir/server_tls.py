"""IR of the TLS that a listener terminates: versions and cipher suites."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

TlsVersion = Literal["TLSv1.2", "TLSv1.3"]

TLS_VERSIONS: tuple[TlsVersion, ...] = ("TLSv1.2", "TLSv1.3")
"""Versions that data planes serve, oldest first."""

ENVOY_SUITES = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-RSA-AES128-SHA256",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA",
    "AES256-SHA",
)
"""Cipher suites of TLS 1.2 with certificates that the BoringSSL of Envoy has."""


class ServerTls(msgspec.Struct, frozen=True, order=True):
    """TLS towards the clients of a listener. Cipher suites are those of TLS 1.2."""

    versions: tuple[TlsVersion, ...] = TLS_VERSIONS
    """At least one, oldest first."""
    ciphers: str = ""
    """Cipher string of OpenSSL; empty: the default of the proxy."""
    suites: tuple[str, ...] = ()
    """Those of :data:`ENVOY_SUITES` that the cipher string selects, most preferred first."""
    prefer_server_ciphers: Literal["", "on", "off"] = ""
    """Use of the server's order of suites, not the clients' order. Empty: the default of the proxy.
    """


DEFAULT_TLS = ServerTls()
"""Settings of a listener without options."""


def all_versions(settings: Iterable[ServerTls]) -> tuple[TlsVersion, ...]:
    """Return the TLS versions that any of several listeners serves, oldest first."""
    served = {version for tls in settings for version in tls.versions}
    return tuple(version for version in TLS_VERSIONS if version in served)
