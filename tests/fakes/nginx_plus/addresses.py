"""Validation of the parameters of an upstream's server, with the errors of NGINX Plus."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

TIME = re.compile(r"(?:\d+(?:ms|[smhdwMy])?)+")

HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")

MAX_ROUTES = 32


class ApiError(Exception):
    """A request that is refused, as the API says it."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(f"{status} {code}: {text}")
        self.status, self.code, self.text = status, code, text


def bad_format(text: str) -> ApiError:
    """Return the error for a body that is JSON but no server."""
    return ApiError(400, "UpstreamConfFormatError", text)


def split(server: str) -> tuple[str, str]:
    """Return host and port of an address; the port is empty if there is none."""
    if server.startswith("["):
        host, _, rest = server[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = server.partition(":")
    return host, port


def is_name(server: str) -> bool:
    """Return whether an address needs DNS resolution."""
    if server.startswith("unix:"):
        return False
    try:
        ipaddress.ip_address(split(server)[0])
    except ValueError:
        return True
    return False


def address(server: str, *, kind: str, service: str = "") -> str:
    """Check an address and write it as the API gives it back; raises ApiError."""
    if server.startswith("unix:"):
        if len(server) == len("unix:"):
            raise ApiError(400, "UpstreamBadAddress", "no path in the unix domain socket")
        return server
    host, port = split(server)
    if not host or (is_name(server) and not HOST.fullmatch(host)):
        raise ApiError(400, "UpstreamBadAddress", f'invalid host in upstream "{server}"')
    if service:
        return _of_service(server, port)
    if not port:
        if kind == "stream":
            raise ApiError(400, "UpstreamBadAddress", f'no port in server "{server}"')
        return f"{server}:80"
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ApiError(400, "UpstreamBadAddress", f'invalid port in upstream "{server}"')
    return server


def _of_service(server: str, port: str) -> str:
    if port:
        raise ApiError(400, "UpstreamBadAddress", f'service upstream "{server}" may not have port')
    if not is_name(server):
        text = f'service upstream "{server}" requires domain name'
        raise ApiError(400, "UpstreamBadAddress", text)
    return server


def value(name: str, raw: Any) -> Any:
    """Check one parameter but the address; raises ApiError."""
    if isinstance(raw, dict | list):
        raise bad_format("nested object or list")
    if name in ("backup", "down", "drain"):
        return _typed(name, raw, bool)
    if name in ("weight", "max_conns", "max_fails"):
        number = _typed(name, raw, int)
        if number < (1 if name == "weight" else 0) or number > 2**31 - 1:
            raise ApiError(400, _code(name), f'invalid "{name}"')
        return number
    text = _typed(name, raw, str)
    if name in ("fail_timeout", "slow_start") and not TIME.fullmatch(text):
        raise ApiError(400, _code(name), f'invalid "{name}"')
    if name == "route" and len(text) > MAX_ROUTES:
        raise ApiError(400, "UpstreamBadRoute", f"route is longer than {MAX_ROUTES}")
    return text


def _typed(name: str, raw: Any, kind: type) -> Any:
    if type(raw) is not kind:
        raise bad_format(f'invalid "{name}" value')
    return raw


def _code(name: str) -> str:
    return "UpstreamBad" + "".join(part.capitalize() for part in name.split("_"))
