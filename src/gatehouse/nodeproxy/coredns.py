"""CoreDNS zone for `kubernetes.default.svc` where the cluster's own Service does not resolve.

A cluster whose Service `kubernetes` has type ExternalName has no address for that name. This zone
for CoreDNS provides one.
"""

from __future__ import annotations

from collections.abc import Sequence

from gatehouse.nodeproxy.options import IPAddress

SERIAL = 2017042745
"""Serial number, which is irrelevant because the zone is never transferred."""

DNS_TTL_SECONDS = 30
_UNUSED = 1_209_600
"""Refresh, retry and expiry in seconds (14 days), which are not used."""

ZONE_FILE = "/etc/coredns/custom/kubernetes.zone"


def service_zone(addresses: Sequence[IPAddress], domain: str = "cluster.local") -> str:
    """Return the zone file of `kubernetes.default.svc.<domain>`.

    The zone has only that name. A wider zone would hide all other Services of the namespace.
    """
    records = "".join(
        f"@ {DNS_TTL_SECONDS} IN {'A' if address.version == 4 else 'AAAA'} {address}\n"
        for address in addresses
    )
    return (
        f"$ORIGIN {_origin(domain)}\n"
        f"@ {DNS_TTL_SECONDS} IN SOA local. hostmaster.invalid. "
        f"{SERIAL} {_UNUSED} {_UNUSED} {_UNUSED} {DNS_TTL_SECONDS}\n"
        f"@ {DNS_TTL_SECONDS} IN NS local.\n"
        f"{records}"
    )


def corefile(domain: str = "cluster.local", file: str = ZONE_FILE) -> str:
    """Return a Corefile that serves the zone from `file`, and everything else as by default."""
    return f"""\
{_origin(domain)}:8053 {{
    errors
    file {file}
    cache {DNS_TTL_SECONDS}
}}
.:8053 {{
    errors
    health
    ready
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl {DNS_TTL_SECONDS}
    }}
    prometheus :9153
    forward . /etc/resolv.conf
    cache {DNS_TTL_SECONDS}
    loop
    reload
    loadbalance
}}
"""


def _origin(domain: str) -> str:
    return f"kubernetes.default.svc.{domain}."
