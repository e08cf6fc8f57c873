"""Endpoints as a bundle delivers them: one small file per upstream, apart from the proxy's text."""

from __future__ import annotations

import ipaddress
import re

import msgspec

DIRECTORY = "gatehouse/endpoints"
"""Where a bundle has them; the file's name is the upstream's: in DNS, or in NGINX Plus' API."""

STREAM_DIRECTORY = "gatehouse/stream-upstreams"
"""Where a bundle has the configuration of an upstream of streams."""

_FILE = re.compile(r".+\.json")


class Endpoint(msgspec.Struct, frozen=True):
    """Where an upstream sends traffic, and its share of it."""

    address: str
    port: int
    weight: int = 1

    def __post_init__(self) -> None:
        # Also what keeps anything else than an address out of NGINX's configuration.
        ipaddress.ip_address(self.address)
        if not (0 < self.port < 65536 and 0 < self.weight < 65536):
            raise ValueError(f"port {self.port} or weight {self.weight} is out of range")

    @property
    def encoded(self) -> str:
        """The endpoint as NGINX writes it."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


Endpoints = tuple[Endpoint, ...]


def name_of(path: str) -> str:
    """Give the upstream whose endpoints a file of a bundle holds; empty: it holds none."""
    directory, _, name = path.rpartition("/")
    return name.removesuffix(".json") if directory == DIRECTORY and _FILE.fullmatch(name) else ""


def path_of(name: str) -> str:
    """Give the path of an upstream's file."""
    return f"{DIRECTORY}/{name}.json"


def stream_file(name: str) -> str:
    """Give the path at which a bundle has the configuration of an upstream, if it is of streams."""
    return f"{STREAM_DIRECTORY}/{name}.conf"


def decode(content: bytes) -> Endpoints:
    """Read a file; raises msgspec.DecodeError."""
    return msgspec.json.decode(content, type=Endpoints)
