"""Generated names: variables, named locations, files. User text is never used unescaped."""

from __future__ import annotations

import hashlib
import re

ROOT = "gatehouse"
"""Directory of all files, in NGINX's configuration directory."""

ZONE = "gatehouse"
STREAM_ZONE = "gatehouse_streams"
"""Shared memory of all upstreams that resolve names: one zone each cost 0.2 ms per reload."""

NOT_FOUND = "@gh_404"
UNAVAILABLE = "@gh_grpc_14"
UNIMPLEMENTED = "@gh_grpc_12"
INVALID_CLIENT_CERTIFICATE = "@gh_unproven"
LONG_HEADERS = "@gh_long_headers"

MAIN_SNIPPETS = f"{ROOT}/main.conf"
HTTP_SNIPPETS = f"{ROOT}/snippets.conf"
EVENTS_CONTEXT = f"{ROOT}/events.conf"
ACCESS_LOG = f"{ROOT}/access_log.conf"
STREAM_ACCESS_LOG = f"{ROOT}/stream_access_log.conf"
REQUEST_LOG = f"{ROOT}/request_log.conf"
CONNECTION_LOG = f"{ROOT}/connection_log.conf"
TRACE_EXPORT = f"{ROOT}/traces.conf"
"""These files exist only if they have content."""

REFUSED = "/.gh-refused"
"""A path that always denies access. It is internal: clients cannot request it."""

NO_FILE = "/.gh-no-file"
"""A file that never exists."""

_SYSTEM_TRUST = "system.pem"
"""File of the CA certificates of the system; the agent provides it, like NGINX's main file."""


def name_digest(*parts: str) -> str:
    """Return a short name derived from ``parts``."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def variable(*parts: str) -> str:
    """Return the name of a variable, without ``$``."""
    return f"gh_{name_digest(*parts)}"


def route(scope: str, name: str, backend: int = 0) -> str:
    """Return the named location of a route, or of one of its backends."""
    return f"@gh_{name_digest(scope, name, str(backend))}"


def grpc_failure(status: int) -> str:
    """Return the named location that answers gRPC calls for which NGINX has an error status."""
    return f"@gh_grpc_{status}"


def grpc_limit(status: int) -> str:
    """Return the named location that answers gRPC calls above a rate limit with this status."""
    return f"@gh_grpc_limit_{status}"


def guarded_location(location: str) -> str:
    """Return the named location that follows the checks of another."""
    return f"{location}_guarded"


def authorized_location(location: str) -> str:
    """Return the named location that follows the check of another by an authorization server."""
    return f"{location}_authorized"


def admitted_location(location: str) -> str:
    """Return the named location that follows the check of addresses, before an authorization
    server."""
    return f"{location}_admitted"


def mirror_path(*parts: str) -> str:
    """Return the internal path of the location that mirrors requests."""
    return f"/.gh-mirror-{name_digest(*parts)}"


def authorization_path(*parts: str) -> str:
    """Return the internal path of the location that calls an authorization server."""
    return f"/.gh-auth-{name_digest(*parts)}"


def key_check_path() -> str:
    """Return the internal path of the check of keys."""
    return "/.gh-keys"


def check_path(party: str) -> str:
    """Return the internal path of the authenticator's check."""
    return f"/.gh-check-{party}"


def login(party: str, headers: str) -> str:
    """Return the named location that starts a login. ``headers``: directives that add some to its
    response."""
    return f"@gh_login_{party}_{name_digest(headers)}" if headers else f"@gh_login_{party}"


def server_file(port: int, hostname: str) -> str:
    """Return the file of a virtual host."""
    return f"{ROOT}/servers/{port}-{_readable(hostname) or 'any'}-{name_digest(hostname)[:8]}.conf"


def default_file(port: int) -> str:
    """Return the file of the default server of a port."""
    return f"{ROOT}/servers/{port}-default.conf"


def upstream_file(cluster: str) -> str:
    """Return the file of an upstream. Agents find it by the name that a virtual host has."""
    return f"{ROOT}/upstreams/{cluster}.conf"


def endpoints_name(upstream: str) -> str:
    """Return the DNS name of an upstream's endpoints."""
    return upstream if len(upstream) <= 63 else name_digest(upstream)


def endpoints_file(upstream: str) -> str:
    """Return the file of an upstream's endpoints."""
    return f"{ROOT}/endpoints/{endpoints_name(upstream)}.json"


def servers_file(upstream: str) -> str:
    """Return the file of the endpoints set by the NGINX Plus API, which has the full name."""
    return f"{ROOT}/endpoints/{upstream}.json"


def status_zone(port: int, hostname: str) -> str:
    """Return the name of the metrics zone of a virtual server in NGINX Plus."""
    return f"{hostname or '_'}:{port}"


def l4_listener_file(port: int, protocol: str) -> str:
    """Return the file of an L4 listener."""
    return f"{ROOT}/streams/{port}-{protocol.lower()}.conf"


def l4_log_variable(port: int, protocol: str) -> str:
    """Return the variable with the log texts of a listener's connections, without ``$``."""
    return f"gh_log_{port}_{protocol.lower()}"


def stream_upstream_file(name: str) -> str:
    """Return the file of an upstream of L4 listeners."""
    return f"{ROOT}/stream-upstreams/{name}.conf"


def trust_file(bundle: str) -> str:
    """Return the file of CA certificates; without ``bundle``, those of the system."""
    return f"{ROOT}/tls/{bundle}.pem" if bundle else _SYSTEM_TRUST


def certificate_file(certificate: str, kind: str) -> str:
    """Return the file of a certificate (``crt``) or its key (``key``)."""
    return f"{ROOT}/tls/{certificate}.{kind}"


def secret_file(name: str) -> str:
    """Return the file of passwords or keys."""
    return f"{ROOT}/secrets/{name}"


def _readable(hostname: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", hostname.replace("*", "wildcard"))[:80].strip(".-")
