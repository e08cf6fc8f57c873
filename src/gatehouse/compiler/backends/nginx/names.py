"""Every generated name: variables, named locations, files. User text never is one."""

from __future__ import annotations

import hashlib
import re

from gatehouse.compiler.ir.http import Persistence

ROOT = "gatehouse"
"""The directory of all files, in NGINX's configuration directory."""

ZONE = "gatehouse"
STREAM_ZONE = "gatehouse_streams"
"""Shared memory of all upstreams that follow names: one each cost 0.2 ms at every reload."""

NOT_FOUND = "@gh_404"
INTERNAL_ERROR = "@gh_500"
UNAVAILABLE = "@gh_grpc_14"
INVALID_CLIENT_CERTIFICATE = "@gh_unproven"

MAIN_SNIPPETS = f"{ROOT}/main.conf"
HTTP_SNIPPETS = f"{ROOT}/snippets.conf"
"""Files that are only there when they hold something."""

REFUSED = "/.gh-refused"
"""A path that refuses everybody; no client can ask for it."""

NO_FILE = "/.gh-no-file"
"""A file that nobody has."""

SYSTEM_TRUST = "system.pem"
"""The file of the authorities that everybody trusts; the agent's own, as NGINX's main file is."""


def digest(*parts: str) -> str:
    """Give a short name for what ``parts`` identify."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def variable(*parts: str) -> str:
    """Give a variable's name, without ``$``."""
    return f"gh_{digest(*parts)}"


def route(scope: str, name: str, backend: int = 0) -> str:
    """Give the named location of a route, or of one of its backends."""
    return f"@gh_{digest(scope, name, str(backend))}"


def delayed_location(location: str) -> str:
    """Give the named location that waits before another."""
    return f"{location}_paused"


def session_variable(wanted: Persistence, route: str) -> str:
    """Give the variable that holds a client's session."""
    rule = route.rpartition("/")[0]
    return variable("session", wanted.kind, wanted.name, rule)


def mirror_path(*parts: str) -> str:
    """Give the path of the location that copies requests; no client can ask for it."""
    return f"/.gh-mirror-{digest(*parts)}"


def check_path(party: str) -> str:
    """Give the path at which an authenticator is asked; no client can ask for it."""
    return f"/.gh-check-{party}"


def login(party: str) -> str:
    """Give the named location that sends users to log in."""
    return f"@gh_login_{party}"


def server_file(port: int, hostname: str) -> str:
    """Give the file of a virtual host."""
    return f"{ROOT}/servers/{port}-{_readable(hostname) or 'any'}-{digest(hostname)[:8]}.conf"


def default_file(port: int) -> str:
    """Give the file of a port's default server."""
    return f"{ROOT}/servers/{port}-default.conf"


def upstream_file(cluster: str) -> str:
    """Give the file of a cluster."""
    return f"{ROOT}/upstreams/{cluster}.conf"


def endpoints(upstream: str) -> str:
    """Give the name in DNS of an upstream's endpoints."""
    return upstream if len(upstream) <= 63 else digest(upstream)


def endpoints_file(upstream: str) -> str:
    """Give the file of an upstream's endpoints."""
    return f"{ROOT}/endpoints/{endpoints(upstream)}.json"


def servers_file(upstream: str) -> str:
    """Give the file of the endpoints that come by NGINX Plus' API, which knows the whole name."""
    return f"{ROOT}/endpoints/{upstream}.json"


def status_zone(port: int, hostname: str) -> str:
    """Give the name under which NGINX Plus counts what a virtual server does."""
    return f"{hostname or '_'}:{port}"


def stream_file(port: int, protocol: str) -> str:
    """Give the file of a port whose connections are forwarded as they are."""
    return f"{ROOT}/streams/{port}-{protocol.lower()}.conf"


def stream_upstream_file(name: str) -> str:
    """Give the file of an upstream of streams."""
    return f"{ROOT}/stream-upstreams/{name}.conf"


def trust_file(bundle: str) -> str:
    """Give the file of certificates of authorities; without a bundle, the system's."""
    return f"{ROOT}/tls/{bundle}.pem" if bundle else SYSTEM_TRUST


def certificate_file(certificate: str, kind: str) -> str:
    """Give the file of a certificate (``crt``) or its key (``key``)."""
    return f"{ROOT}/tls/{certificate}.{kind}"


def secret_file(name: str) -> str:
    """Give the file of passwords or keys."""
    return f"{ROOT}/secrets/{name}"


def _readable(hostname: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", hostname.replace("*", "wildcard"))[:80].strip(".-")
