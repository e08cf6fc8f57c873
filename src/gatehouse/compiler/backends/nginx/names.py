"""Generated names: variables, named locations, files. User text is never used unescaped."""

from __future__ import annotations

import hashlib
import re

from gatehouse.compiler.ir.http import Persistence

ROOT = "gatehouse"
"""Directory of all files, in NGINX's configuration directory."""

ZONE = "gatehouse"
STREAM_ZONE = "gatehouse_streams"
"""Shared memory of all upstreams that resolve names: one zone each cost 0.2 ms per reload."""

NOT_FOUND = "@gh_404"
INTERNAL_ERROR = "@gh_500"
UNAVAILABLE = "@gh_grpc_14"
INVALID_CLIENT_CERTIFICATE = "@gh_unproven"

MAIN_SNIPPETS = f"{ROOT}/main.conf"
HTTP_SNIPPETS = f"{ROOT}/snippets.conf"
"""These files exist only if they have content."""

REFUSED = "/.gh-refused"
"""A path that always denies access. It is internal: clients cannot request it."""

NO_FILE = "/.gh-no-file"
"""A file that never exists."""

SYSTEM_TRUST = "system.pem"
"""File of the CA certificates of the system; the agent provides it, like NGINX's main file."""


def digest(*parts: str) -> str:
    """Return a short name derived from ``parts``."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def variable(*parts: str) -> str:
    """Return the name of a variable, without ``$``."""
    return f"gh_{digest(*parts)}"


def route(scope: str, name: str, backend: int = 0) -> str:
    """Return the named location of a route, or of one of its backends."""
    return f"@gh_{digest(scope, name, str(backend))}"


def delayed_location(location: str) -> str:
    """Return the named location that waits before another."""
    return f"{location}_paused"


def session_variable(persistence: Persistence, route: str) -> str:
    """Return the variable with the session of a client."""
    rule = route.rpartition("/")[0]
    return variable("session", persistence.kind, persistence.name, rule)


def mirror_path(*parts: str) -> str:
    """Return the internal path of the location that mirrors requests."""
    return f"/.gh-mirror-{digest(*parts)}"


def check_path(party: str) -> str:
    """Return the internal path of the authenticator's check."""
    return f"/.gh-check-{party}"


def login(party: str) -> str:
    """Return the named location that starts a login."""
    return f"@gh_login_{party}"


def server_file(port: int, hostname: str) -> str:
    """Return the file of a virtual host."""
    return f"{ROOT}/servers/{port}-{_readable(hostname) or 'any'}-{digest(hostname)[:8]}.conf"


def default_file(port: int) -> str:
    """Return the file of the default server of a port."""
    return f"{ROOT}/servers/{port}-default.conf"


def upstream_file(cluster: str) -> str:
    """Return the file of an upstream."""
    return f"{ROOT}/upstreams/{cluster}.conf"


def endpoints(upstream: str) -> str:
    """Return the DNS name of an upstream's endpoints."""
    return upstream if len(upstream) <= 63 else digest(upstream)


def endpoints_file(upstream: str) -> str:
    """Return the file of an upstream's endpoints."""
    return f"{ROOT}/endpoints/{endpoints(upstream)}.json"


def servers_file(upstream: str) -> str:
    """Return the file of the endpoints set by the NGINX Plus API, which has the full name."""
    return f"{ROOT}/endpoints/{upstream}.json"


def status_zone(port: int, hostname: str) -> str:
    """Return the name of the metrics zone of a virtual server in NGINX Plus."""
    return f"{hostname or '_'}:{port}"


def stream_file(port: int, protocol: str) -> str:
    """Return the file of an L4 listener."""
    return f"{ROOT}/streams/{port}-{protocol.lower()}.conf"


def stream_upstream_file(name: str) -> str:
    """Return the file of an upstream of L4 listeners."""
    return f"{ROOT}/stream-upstreams/{name}.conf"


def trust_file(bundle: str) -> str:
    """Return the file of CA certificates; without ``bundle``, those of the system."""
    return f"{ROOT}/tls/{bundle}.pem" if bundle else SYSTEM_TRUST


def certificate_file(certificate: str, kind: str) -> str:
    """Return the file of a certificate (``crt``) or its key (``key``)."""
    return f"{ROOT}/tls/{certificate}.{kind}"


def secret_file(name: str) -> str:
    """Return the file of passwords or keys."""
    return f"{ROOT}/secrets/{name}"


def _readable(hostname: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", hostname.replace("*", "wildcard"))[:80].strip(".-")
