"""Translation of endpoint URLs to servers."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.ir.kube_apiserver import KubeApiServer

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*"
)
_PATH = re.compile(r"(/[-A-Za-z0-9._~%!$&'()*+,;=:@]*)*")


class ReadServers(msgspec.Struct, frozen=True):
    """The servers of a cluster."""

    scheme: str = ""
    """Scheme of all servers; empty if no endpoint is valid."""
    enabled: tuple[KubeApiServer, ...] = ()
    """Servers that are not disabled, sorted by name."""
    known: frozenset[str] = frozenset()
    """Endpoints of all servers, as in the spec."""
    problems: tuple[str, ...] = ()


def translate_servers(listed: tuple[api.ServerSpec, ...]) -> ReadServers:
    """Return the servers with valid endpoints, without duplicates."""
    schemes: dict[str, None] = {}
    result: dict[str, KubeApiServer] = {}
    problems: list[str] = []
    for index, server in enumerate(listed):
        parsed = parse_server(server.endpoint)
        scheme = server.endpoint.partition(":")[0].lower()
        # Endpoints with @ contain a password and must not appear in messages.
        quoted = "" if "@" in server.endpoint else f" {server.endpoint!r}:"
        if isinstance(parsed, str):
            problems.append(f"servers[{index}].endpoint:{quoted} {parsed}")
        elif scheme != next(iter(schemes), scheme):
            why = "must have the same scheme as the endpoints before it"
            problems.append(f"servers[{index}].endpoint:{quoted} {why}")
        else:
            schemes[scheme] = None
            result[parsed.name] = parsed
    disabled = {server.endpoint for server in listed if server.disabled}
    return ReadServers(
        scheme=next(iter(schemes), ""),
        enabled=tuple(result[name] for name in sorted(result.keys() - disabled)),
        known=frozenset(server.endpoint for server in listed),
        problems=tuple(problems),
    )


def parse_server(endpoint: str) -> KubeApiServer | str:
    """Return the server of a URL, or the problem."""
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in _PORTS:
        return "must begin with https:// or http://"
    if (
        "@" in parts.netloc
        or parts.query
        or parts.fragment
        or re.search(r"[\s\x00-\x1f]", endpoint)
    ):
        return "must have only host, port and path"
    # Hostnames do not end in a number: 10.0.0.256 is an address with a typo.
    if not is_address(host) and (not is_name(host) or host.rpartition(".")[2].isdigit()):
        return f"{host!r} must be a hostname or IP address"
    if port == 0:
        return "port must not be 0"
    if not _PATH.fullmatch(parts.path):
        return f"{parts.path!r} must be a valid path"
    return KubeApiServer(endpoint, host, port or _PORTS[parts.scheme], parts.path.rstrip("/"))


def is_name(host: str) -> bool:
    """Return whether a text in lower case is a hostname; an IP address is not."""
    return _NAME.fullmatch(host) is not None and not is_address(host)


def is_address(host: str) -> bool:
    """Return whether a text is an IP address without brackets and zone."""
    try:
        return "%" not in host and bool(ipaddress.ip_address(host))
    except ValueError:
        return False
