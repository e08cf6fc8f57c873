"""Every generated name: resources, scopes, filters. User text never is one by itself."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

BROKEN = "gh-broken"
"""A cluster that is never there: shares that lead nowhere."""

AUTHENTICATOR = "gh-authenticator"
"""The cluster of the authenticator beside an Envoy."""

OURS = "x-gh-"
"""How the names of headers begin by which Envoy is told something, and by us alone."""

SCOPE_HEADER = f"{OURS}scope"
"""Says, inside of Envoy, which virtual host a request is for."""

SCOPES = "gh.scopes"
"""The filter that looks for a virtual host again, where a name has none of its own."""

WIDE = "*"
"""Stands for a name in the scope of all names that have none of their own."""


def digest(*parts: str) -> str:
    """Give a short name for what ``parts`` identify."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def listener(port: int, family: str) -> str:
    """Name a port's listener; ``family`` is ``tcp`` or ``udp``."""
    return f"{family}/{port}"


def chain(port: int, hostname: str, number: int = 0) -> str:
    """Name a filter chain of a port after the name in the handshake that it is for."""
    return f"{port}/{hostname or '-'}" + (f"/{number}" if number else "")


def by_name(port: int) -> str:
    """Begin the names of the clusters of a port that end in a name of a handshake."""
    return f"sni/{port}/"


def by_destination(port: int, sources: tuple[str, ...] = ()) -> str:
    """Begin the names of the clusters of a port that end in a destination.

    With a list of sources it is another name: whoever is led to it has been held against that list.
    """
    return f"dst-{digest(*sources)}/{port}/" if sources else f"dst/{port}/"


def scope(port: int, listener: str, hostname: str) -> str:
    """Name the scope of a virtual host."""
    return f"{port}/{listener or '-'}/{hostname}"


def server_certificate(chain_name: str, number: int) -> str:
    """Name a certificate by its place, so that a renewed one is the same resource."""
    return f"certificate/{chain_name}/{number}"


def client_trust(port: int) -> str:
    """Name the authorities for clients of a port."""
    return f"clients/{port}"


def backend_trust(cluster: str) -> str:
    """Name the authorities for a cluster."""
    return f"backends/{cluster}"


def backend_certificate(cluster: str) -> str:
    """Name the certificate that is shown to a cluster."""
    return f"shown/{cluster}"


SCRIPT = "gh.kubernetes"
"""The filter that understands requests for kube-apiservers; also the name of what it is told."""

REVIEWER = "gh-reviewer"
"""The cluster of the companion that is asked about tokens; the script has this name as well."""

FLOW_SCOPES = "flow/"
"""How the names of scopes begin in which requests for kube-apiservers go on."""

VERB_WIDTH = 16
"""Characters of a verb where the script says what a request is: ``deletecollection`` is longest.
Envoy can cut a text, not split it."""

SCOPE_PLACE = 1
"""Where the scope of a request for kube-apiservers stands in what is said of it."""


def scope_header_value(scope: str) -> str:
    """Say a scope, in the header for it, of a request of which nothing else is known yet.

    The connection by which it arrived may stand behind it. Later it is ``verb:scope:resource``,
    the verb with spaces behind it to a fixed width. No scope has a colon. The script and the agent
    know this form too.
    """
    return f":{scope}"


UPSTREAM_SOCKET = "upstream.sock"
REVIEWER_SOCKET = "reviewer.sock"
"""Both in the directory where Envoy runs."""

REVIEWER_COMPANION = "reviewer"
REVIEWER_FILES = {"gatehouse/reviewer.json": b"{}"}
"""The companion of the agent, and what it is described by: that it is needed is all it is told."""


def plain(name: str) -> str:
    """Write a name of an object where a name is made of several."""
    return quote(name.encode("utf-8", "surrogatepass"), safe="")


def api(cluster: str) -> str:
    """Name a cluster of kube-apiservers where something is said of it to people."""
    return f"api/{cluster}"


def unserved(cluster: str) -> str:
    """Name a cluster of which nothing is served, or not all that it needs, where that is said."""
    return f"{api(cluster)}/served"


def api_chain(port: int, cluster: str) -> str:
    """Name the chain of a cluster's kube-apiservers; empty for names that none has."""
    return chain(port, f"kube/{plain(cluster)}")


def api_clients(port: int, cluster: str) -> str:
    """Name the authorities for clients of a cluster's kube-apiservers."""
    return f"clients/{port}/{plain(cluster)}"


def api_scope(port: int, cluster: str) -> str:
    """Name the scope in which requests for a cluster's kube-apiservers arrive."""
    return f"api/{port}/{plain(cluster)}"


def flow_scope(cluster: str, schema: str) -> str:
    """Name the scope in which the requests of a flow schema go on; empty for those of none."""
    return f"{FLOW_SCOPES}{plain(cluster)}/{plain(schema)}"


def upstream_scope(cluster: str) -> str:
    """Name the scope of what the reviewer asks a cluster."""
    return f"upstream/{plain(cluster)}"


def servers(cluster: str, schema: str = "", *, upgrades: bool = False) -> str:
    """Name the kube-apiservers of a cluster, as those of a schema, and as HTTP/1.1 ones."""
    flow = f"/flow/{plain(schema)}" if schema else ""
    return f"kube:{plain(cluster)}{flow}{'/upgrades' if upgrades else ''}"


def counter(address: str) -> str:
    """Name the cluster of a shared counter."""
    return f"counter:{address}"
