"""Endpoint files of a file set: one small file per upstream, apart from the NGINX configuration."""

from __future__ import annotations

import re

import msgspec

from kube_base.types import ip_addresses
from kube_base.types.ip_addresses import bracketed

_DIRECTORY = "gatehouse/endpoints"
"""Directory of endpoint files. A file is named like the upstream in DNS or in the NGINX Plus
API."""

POOL_DIRECTORY = "gatehouse/pools"
"""Directory of the endpoints that the picker client reads: of pools, and of endpoint pickers."""

STREAM_DIRECTORY = "gatehouse/stream-upstreams"
"""Directory of the configuration of ``stream {}`` upstreams."""

_FILE = re.compile(r".+\.json")


class WeightedEndpoint(msgspec.Struct, frozen=True):
    """Address of an upstream server and its weight."""

    address: str
    port: int
    weight: int = 1

    def __post_init__(self) -> None:
        # This check also prevents injection into the NGINX configuration.
        ip_addresses.ip_address(self.address)
        if not (0 < self.port < 65536 and 0 < self.weight < 65536):
            raise ValueError(f"port {self.port} or weight {self.weight} is out of range")

    @property
    def encoded(self) -> str:
        """The endpoint in NGINX syntax."""
        return f"{bracketed(self.address)}:{self.port}"


Endpoints = tuple[WeightedEndpoint, ...]


def upstream_of(path: str) -> str:
    """Return the upstream that an endpoint file is for, or "" for any other file."""
    directory, _, name = path.rpartition("/")
    return name.removesuffix(".json") if directory == _DIRECTORY and _FILE.fullmatch(name) else ""


def endpoints_path(name: str) -> str:
    """Return the path of an upstream's endpoint file."""
    return f"{_DIRECTORY}/{name}.json"


def pool_endpoints_path(name: str) -> str:
    """Return the path of the endpoints of a cluster for the picker client."""
    return f"{POOL_DIRECTORY}/{name}.json"


def is_pool_file(path: str) -> bool:
    """Return whether a file has endpoints for the picker client."""
    return path.startswith(f"{POOL_DIRECTORY}/")


def stream_endpoints_file(name: str) -> str:
    """Return the path of an upstream's configuration if it is a ``stream {}`` upstream."""
    return f"{STREAM_DIRECTORY}/{name}.conf"


def parse_endpoints(content: bytes) -> Endpoints:
    """Parse an endpoint file. Raises msgspec.DecodeError."""
    return msgspec.json.decode(content, type=Endpoints)
