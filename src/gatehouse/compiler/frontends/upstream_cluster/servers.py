"""Endpoints: from URLs to servers."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.ir.kube_apiserver import Server

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*"
)
_PATH = re.compile(r"(/[-A-Za-z0-9._~%!$&'()*+,;=:@]*)*")


class ReadServers(msgspec.Struct, frozen=True):
    """The servers of a cluster."""

    scheme: str = ""
    """Of all of them; empty: none can be spoken to."""
    enabled: tuple[Server, ...] = ()
    """Sorted by name; those that are not disabled."""
    known: frozenset[str] = frozenset()
    """The endpoints of all of them, as they are written."""
    problems: tuple[str, ...] = ()


def read(listed: tuple[api.Server, ...]) -> ReadServers:
    """Give the servers that can be spoken to; one that is listed twice is so once."""
    schemes: dict[str, None] = {}
    found: dict[str, Server] = {}
    problems: list[str] = []
    for index, each in enumerate(listed):
        made = server(each.endpoint)
        scheme = each.endpoint.partition(":")[0].lower()
        # What stands before an @ is a password.
        shown = "" if "@" in each.endpoint else f" {each.endpoint!r}:"
        if isinstance(made, str):
            problems.append(f"servers[{index}].endpoint:{shown} {made}")
        elif scheme != next(iter(schemes), scheme):
            why = "its scheme is not that of the endpoints before it"
            problems.append(f"servers[{index}].endpoint:{shown} {why}")
        else:
            schemes[scheme] = None
            found[made.name] = made
    disabled = {each.endpoint for each in listed if each.disabled}
    return ReadServers(
        scheme=next(iter(schemes), ""),
        enabled=tuple(found[name] for name in sorted(found.keys() - disabled)),
        known=frozenset(each.endpoint for each in listed),
        problems=tuple(problems),
    )


def server(endpoint: str) -> Server | str:
    """Give the server of a URL, or what is wrong with it."""
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in _PORTS:
        return "it begins neither with https:// nor with http://"
    if (
        "@" in parts.netloc
        or parts.query
        or parts.fragment
        or re.search(r"[\s\x00-\x1f]", endpoint)
    ):
        return "it may have a host, a port and a path, and nothing else"
    # No name ends in a number: 10.0.0.256 is an address with a typo.
    if not is_address(host) and (not is_name(host) or host.rpartition(".")[2].isdigit()):
        return f"{host!r} is neither a host name nor an IP address"
    if port == 0:
        return "port 0 cannot be spoken to"
    if not _PATH.fullmatch(parts.path):
        return f"{parts.path!r} is not a path"
    return Server(endpoint, host, port or _PORTS[parts.scheme], parts.path.rstrip("/"))


def is_name(host: str) -> bool:
    """Whether a text in lower case is a host name; an IP address is none."""
    return _NAME.fullmatch(host) is not None and not is_address(host)


def is_address(host: str) -> bool:
    """Whether a text is an IP address, without brackets and zone."""
    try:
        return "%" not in host and bool(ipaddress.ip_address(host))
    except ValueError:
        return False
