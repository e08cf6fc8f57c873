"""Every generated name: variables, named locations, files. User text never is one."""

from __future__ import annotations

import hashlib
import re

ROOT = "gatehouse"
"""The directory of all files, in NGINX's configuration directory."""

NOT_FOUND = "@gh_404"
FAILED = "@gh_500"
UNAVAILABLE = "@gh_503"


def digest(*parts: str) -> str:
    """Give a short name for what ``parts`` identify."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def variable(*parts: str) -> str:
    """Give a variable's name, without ``$``."""
    return f"gh_{digest(*parts)}"


def route(scope: str, name: str, backend: int = 0) -> str:
    """Give the named location of a route, or of one of its backends."""
    return f"@gh_{digest(scope, name, str(backend))}"


def server_file(port: int, hostname: str) -> str:
    """Give the file of a virtual host."""
    return f"{ROOT}/servers/{port}-{_readable(hostname) or 'any'}-{digest(hostname)[:8]}.conf"


def default_file(port: int) -> str:
    """Give the file of a port's default server."""
    return f"{ROOT}/servers/{port}-default.conf"


def upstream_file(cluster: str) -> str:
    """Give the file of a cluster."""
    return f"{ROOT}/upstreams/{cluster}.conf"


def certificate_file(certificate: str, kind: str) -> str:
    """Give the file of a certificate (``crt``) or its key (``key``)."""
    return f"{ROOT}/tls/{certificate}.{kind}"


def _readable(hostname: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", hostname.replace("*", "wildcard"))[:80].strip(".-")
