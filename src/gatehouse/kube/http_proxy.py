"""Selection of an HTTP proxy by environment variables. No I/O.

Variables have the semantics of Kubernetes clients (Go's golang.org/x/net/http/httpproxy).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def proxy_for(url: str, environ: Mapping[str, str]) -> str:
    """Return the URL of the proxy to use for ``url``; empty for none.

    ``HTTPS_PROXY`` or ``HTTP_PROXY`` applies by scheme, except to hosts in ``NO_PROXY`` and to
    localhost. Lower-case names are read too.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    proxy = _variable(environ, f"{parts.scheme}_proxy")
    if not proxy or _is_local(host) or _is_excluded(host, port, _variable(environ, "no_proxy")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper(), "") or environ.get(name, "")


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_excluded(host: str, port: int, exclusions: str) -> bool:
    return any(
        _matches(host, port, entry.strip().lower())
        for entry in exclusions.split(",")
        if entry.strip()
    )


def _matches(host: str, port: int, entry: str) -> bool:
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, entry_port = _split(entry)
    if entry_port and entry_port != str(port):
        return False
    entry_address = _address(name)
    if entry_address is not None or address is not None:
        return entry_address == address
    # example.com matches itself and subdomains; .example.com matches subdomains only.
    domain = name.removeprefix("*").removeprefix(".")
    return host.endswith(f".{domain}") or host == name


def _split(entry: str) -> tuple[str, str]:
    if _address(entry) is not None:
        return entry, ""
    name, _, port = entry.rpartition(":")
    return (name.strip("[]"), port) if port.isdigit() else (entry.strip("[]"), "")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
