"""Generated names: resources, scopes, filters. User text is never a whole name."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

from gatehouse.dataplane.unready_servers import SERVERS_PREFIX

BROKEN = "gh-broken"
"""A cluster that never exists, for shares without a cluster."""

AUTHENTICATOR = "gh-authenticator"
"""Cluster of the authenticator of an Envoy."""

TRACE_COLLECTOR = "gh-traces"
"""Cluster of the collector of traces."""

HEADER_PREFIX = "x-gh-"
"""Prefix of headers that control Envoy. Only generated configuration sets them."""

SCOPE_HEADER = f"{HEADER_PREFIX}scope"
"""Header that selects the virtual host of a request, inside Envoy."""

SCOPES = "gh.scopes"
"""Filter that checks upgrades, and repeats the lookup of scopes that do not exist."""

WIDE = "*"
"""Stands for the hostname in the scope of all hostnames without a scope of their own."""


def short_digest(*parts: str) -> str:
    """Return a short name derived from ``parts``."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def listener_name(port: int, family: str) -> str:
    """Return the name of a port's listener; ``family`` is ``tcp`` or ``udp``."""
    return f"{family}/{port}"


def filter_chain_name(port: int, hostname: str, number: int = 0) -> str:
    """Return the name of a filter chain of a port for a hostname."""
    return f"{port}/{hostname or '-'}" + (f"/{number}" if number else "")


def by_name(port: int) -> str:
    """Return the prefix of the dynamic clusters of a port that end in an SNI."""
    return f"sni/{port}/"


def by_destination(port: int, sources: tuple[str, ...] = ()) -> str:
    """Return the prefix of the dynamic clusters of a port that end in a destination.

    A list of sources gives another name: only clients checked against that list reach it.
    """
    return f"dst-{short_digest(*sources)}/{port}/" if sources else f"dst/{port}/"


def behind_balancers(port: int) -> str:
    """Return the listener and cluster of a port for connections with two PROXY headers."""
    return f"node/{port}"


def behind_balancers_socket(port: int) -> str:
    """Return the socket of that listener, in the working directory of Envoy."""
    return f"node-{port}.sock"


def by_connect(port: int) -> str:
    """Return the prefix of the scopes of a port that end in the destination of a CONNECT
    request."""
    return f"connect/{port}/"


def scope(port: int, listener: str, hostname: str) -> str:
    """Return the scope of a virtual host."""
    return f"{port}/{listener or '-'}/{hostname}"


def server_certificate(chain_name: str, number: int) -> str:
    """Return the name of a certificate by its position, so that a renewal is the same resource."""
    return f"certificate/{chain_name}/{number}"


def client_trust_name(port: int) -> str:
    """Return the name of the CA certificates for clients of a port."""
    return f"clients/{port}"


def backend_trust(cluster: str) -> str:
    """Return the name of the CA certificates for a cluster."""
    return f"backends/{cluster}"


def backend_certificate(cluster: str) -> str:
    """Return the name of the client certificate for a cluster."""
    return f"shown/{cluster}"


SCRIPT = "gh.kubernetes"
"""Filter of the kube-apiserver script, and the key of its metadata."""

UNREADY_HEADER = f"{HEADER_PREFIX}unready"
"""Header of a local reply because no server is ready: the sender. The script uses this name too."""

REVIEWER_CLUSTER = "gh-reviewer"
"""Cluster of the reviewer sidecar, which reviews tokens; the script uses this name too."""

FLOW_SCOPES = "flow/"
"""Prefix of the scopes of flow schemas."""

VERB_WIDTH = 16
"""Width in characters of a verb in the scope header: ``deletecollection`` is the longest. Envoy can
truncate a text, not split it."""

SCOPE_INDEX = 1
"""Index of the scope among the colon-separated elements of the header, for kube-apiservers."""


def scope_header_value(scope: str) -> str:
    """Return the value of the scope header for a request on arrival.

    The connection ID may follow it. Later the value is ``verb:scope:resource``, the verb padded
    with spaces to a fixed width. No scope has a colon. The script and the agent depend on this
    format too.
    """
    return f":{scope}"


UPSTREAM_SOCKET = "upstream.sock"
REVIEWER_SOCKET_NAME = "reviewer.sock"
"""Sockets in the working directory of Envoy."""

REVIEWER_SIDECAR_NAME = "reviewer"
REVIEWER_FILES = {"gatehouse/reviewer.json": b"{}"}
"""Name of the sidecar, and its configuration: it only needs to run."""


def plain(name: str) -> str:
    """Return the name of an object, escaped for use in a name of several elements."""
    return quote(name.encode("utf-8", "surrogatepass"), safe="")


def stats_element(name: str) -> str:
    """Return a name as one element of Envoy's statistics: dots would split it into several.

    Envoy takes the first element as label, and the rest into the name of the metric.
    """
    return name.replace(".", "%2E")


def api_chain(port: int, cluster: str) -> str:
    """Return the filter chain of a cluster's kube-apiservers; empty ``cluster``: of unknown
    names."""
    return filter_chain_name(port, f"kube/{plain(cluster)}")


def api_clients(port: int, cluster: str) -> str:
    """Return the name of the CA certificates for clients of a cluster's kube-apiservers."""
    return f"clients/{port}/{plain(cluster)}"


def api_scope(port: int, cluster: str) -> str:
    """Return the scope in which requests for a cluster's kube-apiservers arrive."""
    return f"api/{port}/{plain(cluster)}"


def flow_scope(cluster: str, schema: str) -> str:
    """Return the scope of the requests of a flow schema; empty ``schema``: without one."""
    return f"{FLOW_SCOPES}{plain(cluster)}/{plain(schema)}"


def upstream_scope(cluster: str) -> str:
    """Return the scope of the reviewer's requests to a cluster."""
    return f"upstream/{plain(cluster)}"


def servers_cluster_name(cluster: str, schema: str = "", *, upgrades: bool = False) -> str:
    """Return the Envoy cluster of a cluster's kube-apiservers: of a schema, or for upgrades."""
    flow = f"/flow/{plain(schema)}" if schema else ""
    return f"{SERVERS_PREFIX}{plain(cluster)}{flow}{'/upgrades' if upgrades else ''}"


def rate_limit_cluster_name(address: str) -> str:
    """Return the cluster of a rate limit service."""
    return f"counter:{address}"
