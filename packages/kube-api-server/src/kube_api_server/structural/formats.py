"""String formats that Kubernetes checks (OpenAPI formats as in go-openapi)."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

from kube_base.types import ip_addresses

DURATION = re.compile(
    r"[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)((\d+(\.\d*)?)(ns|us|µs|ms|s|m|h))*"
)


def _parses_with(read: Callable[[str], Any]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            read(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return test


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme) or text.startswith("/")


def _cidr(text: str) -> bool:
    return "/" in text and _parses_with(lambda t: ip_addresses.ip_network(t, strict=False))(text)


_HEX = "[0-9a-fA-F]"

STRING_FORMATS: dict[str, Callable[[str], bool]] = {
    "ipv4": _parses_with(ipaddress.IPv4Address),
    "ipv6": _parses_with(ipaddress.IPv6Address),
    "cidr": _cidr,
    "uri": _uri,
    "hostname": _matches(
        r"(?=.{1,253}$)([A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*\.?"
    ),
    "email": _matches(r"[^@\s]+@[^@\s]+"),
    "mac": _matches(rf"({_HEX}{{2}}[:-]){{5,7}}{_HEX}{{2}}|({_HEX}{{4}}\.){{2,3}}{_HEX}{{4}}"),
    "uuid": _matches(rf"{_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}"),
    "byte": _parses_with(lambda text: base64.b64decode(text, validate=True)),
    "date": _parses_with(date.fromisoformat),
    "datetime": _parses_with(datetime.fromisoformat),
    "duration": lambda text: text == "0" or DURATION.fullmatch(text) is not None,
}
"""Predicates by format. Other formats are not checked."""
