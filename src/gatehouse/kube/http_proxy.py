"""Which proxy leads to an API server, by the environment's variables. Pure.

Names and meaning as Kubernetes' own clients have them (Go's golang.org/x/net/http/httpproxy).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def proxy_for(url: str, environ: Mapping[str, str]) -> str:
    """Give the URL of the proxy to use for ``url``; empty for none.

    ``HTTPS_PROXY`` or ``HTTP_PROXY``, by the scheme, but for what ``NO_PROXY`` lists and for this
    machine itself. Small letters do as well.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    proxy = _variable(environ, f"{parts.scheme}_proxy")
    if not proxy or _is_local(host) or _excepted(host, port, _variable(environ, "no_proxy")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper(), "") or environ.get(name, "")


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _excepted(host: str, port: int, exceptions: str) -> bool:
    return any(
        _matches(host, port, each.strip().lower()) for each in exceptions.split(",") if each.strip()
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
    named, only = _split(entry)
    if only and only != str(port):
        return False
    exception = _address(named)
    if exception is not None or address is not None:
        return exception == address
    # example.com is itself and all below it; .example.com is all below it.
    below = named.removeprefix("*").removeprefix(".")
    return host.endswith(f".{below}") or host == named


def _split(entry: str) -> tuple[str, str]:
    if _address(entry) is not None:
        return entry, ""
    named, _, port = entry.rpartition(":")
    return (named.strip("[]"), port) if port.isdigit() else (entry.strip("[]"), "")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
