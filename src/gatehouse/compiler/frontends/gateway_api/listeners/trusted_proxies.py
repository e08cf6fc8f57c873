"""Which proxies a Gateway believes when they say where their clients come from."""

from __future__ import annotations

import ipaddress

from gatehouse.apis import gateway
from gatehouse.incremental.query import Ask, Key

TRUSTED = "gatehouse.dev/trusted-proxies"
"""The annotation of a Gateway with addresses and CIDR ranges, separated by commas."""


def trusted(ask: Ask, key: Key) -> tuple[str, ...] | str:
    """Give the ranges that a Gateway names, sorted; or what is wrong with them.

    Empty where the annotation is missing. One that says nothing is wrong: nobody would be believed.
    """
    found = ask.read(key)
    if not isinstance(found, gateway.Gateway):
        return ()
    text = found.metadata.annotations.get(TRUSTED)
    if text is None:
        return ()
    ranges = set()
    for part in text.split(","):
        try:
            ranges.add(str(ipaddress.ip_network(part.strip(), strict=False)))
        except ValueError:
            where = f"metadata.annotations[{TRUSTED}]"
            return f"{where}: {part.strip()!r} is neither an address nor a range"
    return tuple(sorted(ranges))
