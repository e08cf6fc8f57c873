"""CA certificates of the operating system, for policies that refer to them."""

from __future__ import annotations

import ssl
from pathlib import Path

_LOCATIONS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""CA files of Debian, Red Hat, SUSE and Alpine."""


def system_bundle() -> Path | None:
    """Return the CA file named by SSL_CERT_FILE, otherwise one at a usual location, or None."""
    configured = ssl.get_default_verify_paths().cafile
    candidates = [Path(path) for path in (*([configured] if configured else ()), *_LOCATIONS)]
    return next((path for path in candidates if path.is_file()), None)
