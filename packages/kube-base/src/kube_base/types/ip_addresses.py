"""IP addresses and networks in fields of objects.

Python accepts a scope (`fe80::1%eth0`) with any text, also with line breaks and spaces. Kubernetes
accepts none, and no proxy could use one.
"""

from __future__ import annotations

import ipaddress

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def ip_address(text: str) -> _Address:
    """Parse an address without scope. Raises ValueError."""
    return ipaddress.ip_address(_without_scope(text))


def ip_network(text: str, *, strict: bool = True) -> _Network:
    """Parse a network without scope. Raises ValueError.

    ``strict``: bits of a host are not allowed.
    """
    return ipaddress.ip_network(_without_scope(text), strict=strict)


def is_ip_address(text: str) -> bool:
    """Return whether a text is an address without scope."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def bracketed(host: str) -> str:
    """Return an address or hostname as before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def _without_scope(text: str) -> str:
    if "%" in text:
        raise ValueError(f"{text!r} must not have a scope")
    return text
