"""The authorities that this machine trusts, for policies that ask for these."""

from __future__ import annotations

import ssl
from pathlib import Path

_USUAL = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Debian, Red Hat, SUSE, Alpine."""


def bundle() -> Path | None:
    """Give the file of authorities, by SSL_CERT_FILE or where systems have it; None: none."""
    named = ssl.get_default_verify_paths().cafile
    candidates = [Path(path) for path in (*([named] if named else ()), *_USUAL)]
    return next((path for path in candidates if path.is_file()), None)
