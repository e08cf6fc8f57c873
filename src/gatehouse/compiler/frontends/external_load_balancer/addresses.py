"""IP addresses in ``host:port`` notation."""

from __future__ import annotations

from kube_base.types import ip_addresses


def placed_address(address: str) -> tuple[str, str] | None:
    """Return an IP address (IPv6 in brackets) and its family; None if it is invalid."""
    try:
        parsed = ip_addresses.ip_address(address)
    except ValueError:
        return None
    return (f"[{parsed}]", "IPv6") if parsed.version == 6 else (str(parsed), "IPv4")
