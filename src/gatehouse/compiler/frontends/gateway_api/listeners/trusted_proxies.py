"""Trusted proxies of a Gateway, whose PROXY headers are believed."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.incremental.query import Ask, Key
from kube_base.types import ip_addresses

TRUSTED = "gatehouse.dev/trusted-proxies"
"""Annotation of a Gateway: addresses and CIDR ranges of proxies whose PROXY headers are believed,
separated by commas.
"""


def trusted(ask: Ask, key: Key) -> tuple[str, ...] | str:
    """Return the trusted ranges of a Gateway, sorted; or the problem.

    Empty if the annotation is missing. An empty annotation is an error: no proxy would be trusted.
    """
    gateway_object = ask.read(key)
    if not isinstance(gateway_object, gateway.Gateway):
        return ()
    text = gateway_object.metadata.annotations.get(TRUSTED)
    if text is None:
        return ()
    ranges = set()
    for part in text.split(","):
        try:
            ranges.add(str(ip_addresses.ip_network(part.strip(), strict=False)))
        except ValueError:
            where = f"metadata.annotations[{TRUSTED}]"
            return f"{where}: {part.strip()!r} must be an IP address or CIDR range"
    return tuple(sorted(ranges))
