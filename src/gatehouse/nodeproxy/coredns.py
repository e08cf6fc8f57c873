"""The name ``kubernetes.default.svc`` where the hosted cluster's own Service does not answer it.

A cluster whose Service ``kubernetes`` is of the type ExternalName has no address for that name;
here CoreDNS gets a zone that has one.
"""

from __future__ import annotations

from collections.abc import Sequence

from gatehouse.nodeproxy.options import Address

SERIAL = 2017042745
"""The zone is never transferred, so that its number says nothing."""

TTL = 30
_REST = 1_209_600
"""Seconds (14 days) for refresh, retry and expiry, which nobody uses."""

ZONE_FILE = "/etc/coredns/custom/kubernetes.zone"


def zone(addresses: Sequence[Address], domain: str = "cluster.local") -> str:
    """Give the zone file of ``kubernetes.default.svc.<domain>``.

    The zone is that one name: a wider one would hide all other Services of the namespace.
    """
    records = "".join(
        f"@ {TTL} IN {'A' if each.version == 4 else 'AAAA'} {each}\n" for each in addresses
    )
    return (
        f"$ORIGIN {_origin(domain)}\n"
        f"@ {TTL} IN SOA local. nobody.invalid. {SERIAL} {_REST} {_REST} {_REST} {TTL}\n"
        f"@ {TTL} IN NS local.\n"
        f"{records}"
    )


def corefile(domain: str = "cluster.local", file: str = ZONE_FILE) -> str:
    """Give a Corefile that answers the zone from ``file``, and everything else as usual."""
    return f"""\
{_origin(domain)}:8053 {{
    errors
    file {file}
    cache {TTL}
}}
.:8053 {{
    errors
    health
    ready
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl {TTL}
    }}
    prometheus :9153
    forward . /etc/resolv.conf
    cache {TTL}
    loop
    reload
    loadbalance
}}
"""


def _origin(domain: str) -> str:
    return f"kubernetes.default.svc.{domain}."
