"""IP addresses as they stand before a port."""

from __future__ import annotations

import ipaddress


def placed_address(address: str) -> tuple[str, str] | None:
    """Give an IP address as it stands before a port, and its family; None if it is none."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return None
    return (f"[{found}]", "IPv6") if found.version == 6 else (str(found), "IPv4")
