"""Names outside the cluster that users may let a data plane connect to. No I/O."""

from __future__ import annotations

import re
from collections.abc import Collection

from gatehouse.apis.gateway import ANY_DOMAIN, EXTERNAL_NAME_OPTION

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_MAX_BYTES = 253
_SPECIAL_DOMAINS = frozenset(("arpa", "internal", "invalid", "local", "localdomain", "localhost"))
"""Top-level domains of hosts, clusters and clouds; ``cluster.local`` and the metadata services of
clouds (``metadata.google.internal``) are below them."""
_CLUSTER_LABELS = frozenset(("pod", "svc"))
"""Labels between a namespace and the domain of a cluster, whatever the domain is."""


def name_problem(name: str, domains: Collection[str]) -> str:
    """Return why a name must not be a backend; empty if it may. ``domains``: as the operator
    allows them, with their subdomains."""
    labels = name.split(".")
    if len(name) > _MAX_BYTES or not all(_LABEL.fullmatch(label) for label in labels):
        return "must be a DNS name"
    # NGINX and libc read 127.1 and 0x7f.1 as addresses. No top-level domain starts with a digit.
    if labels[-1][0].isdigit():
        return "must be a DNS name, not an IP address"
    if len(labels) == 1 or labels[-1] in _SPECIAL_DOMAINS or _CLUSTER_LABELS & {*labels[1:]}:
        return "must not be a name of the host, of the cluster or of the cloud"
    allowed = (domain.lower().strip(".") for domain in domains)
    if not any(domain == ANY_DOMAIN or f".{name}".endswith(f".{domain}") for domain in allowed):
        return f"{EXTERNAL_NAME_OPTION} does not allow the name"
    return ""
