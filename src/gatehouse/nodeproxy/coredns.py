"""CoreDNS zone for `kubernetes.default.svc` where the cluster's own Service does not resolve.

A cluster whose Service `kubernetes` has type ExternalName has no address for that name. This zone
for CoreDNS provides one.
"""

from __future__ import annotations

from collections.abc import Sequence

from gatehouse.nodeproxy.options import Address

SERIAL = 2017042745
"""Serial number, which is irrelevant because the zone is never transferred."""

TTL = 30
_UNUSED = 1_209_600
"""Refresh, retry and expiry in seconds (14 days), which are not used."""

ZONE_FILE = "/etc/coredns/custom/kubernetes.zone"


def zone(addresses: Sequence[Address], domain: str = "cluster.local") -> str:
    """Return the zone file of `kubernetes.default.svc.<domain>`.

    The zone has only that name. A wider zone would hide all other Services of the namespace.
    """
    records = "".join(
        f"@ {TTL} IN {'A' if each.version == 4 else 'AAAA'} {each}\n" for each in addresses
    )
    return (
        f"$ORIGIN {_origin(domain)}\n"
        f"@ {TTL} IN SOA local. hostmaster.invalid. {SERIAL} {_UNUSED} {_UNUSED} {_UNUSED} {TTL}\n"
        f"@ {TTL} IN NS local.\n"
        f"{records}"
    )


def corefile(domain: str = "cluster.local", file: str = ZONE_FILE) -> str:
    """Return a Corefile that serves the zone from `file`, and everything else as by default."""
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
