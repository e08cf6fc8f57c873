"""Inputs of the front end: index buckets, and the spec of an object in normal form."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gatehouse.apis import hosted_api_servers as api
from gatehouse.apis import meta
from gatehouse.incremental.query import Key
from kube_base.types import ip_addresses

HOSTED: Key = ("@hosted",)
"""Bucket of all HostedAPIServers."""

HOST, ADDRESS, SERVICE = "@hosted-host", "@hosted-address", "@hosted-service"
"""First parts of the buckets of objects that claim the same hostname, address or Service port."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class ParsedSpec(msgspec.Struct, frozen=True):
    """Parsed spec of a HostedAPIServer."""

    hosts: tuple[str, ...] = ()
    """Hostnames in lower case without trailing dot, distinct, in the object's order."""
    address: str = ""
    """Advertised IPv4 or IPv6 address in canonical text; empty for none."""
    port: int = 443
    sources: tuple[str, ...] = ()
    """Allowed source ranges (CIDR), sorted and distinct; empty for all."""
    problem: str = ""
    """Field path and problem; empty if the spec is valid. An invalid object is not served."""


class InvalidFieldError(ValueError):
    """An invalid field; the message has its path."""


def parse_spec(hosted: Any) -> ParsedSpec:
    """Return the parsed spec of an object."""
    if isinstance(hosted, meta.Malformed):
        return ParsedSpec(problem=hosted.message)
    if not isinstance(hosted, api.HostedAPIServer):
        return ParsedSpec()
    spec = hosted.spec
    if not spec.hosts:
        return ParsedSpec(problem="spec.hosts: must not be empty")
    try:
        hosts = tuple(dict.fromkeys(map(_host, range(len(spec.hosts)), spec.hosts)))
        address, port = _advertised(spec)
        sources = {
            _source(number, source) for number, source in enumerate(spec.allowed_sources)
        }  # fmt: skip
        return ParsedSpec(hosts, address, port, tuple(sorted(sources)))
    except InvalidFieldError as error:
        return ParsedSpec(problem=str(error))


def _host(number: int, text: str) -> str:
    name = text.lower().removesuffix(".")
    where = f"spec.hosts[{number}]: {text!r}"
    if "*" in name:
        raise InvalidFieldError(
            f"{where}: wildcards are not supported: each hostname leads to one cluster"
        )
    labels = name.split(".")
    if len(name) > 253 or len(labels) < 2 or not all(map(_LABEL.fullmatch, labels)):
        raise InvalidFieldError(f"{where} must be a hostname with a domain")
    if labels[-1].isdigit():
        raise InvalidFieldError(f"{where} must be a hostname, not an IP address")
    return name


def _advertised(spec: api.HostedAPIServerSpec) -> tuple[str, int]:
    if not spec.advertise_address:
        return "", 443
    where = f"spec.advertiseAddress: {spec.advertise_address!r}"
    try:
        address = ip_addresses.ip_address(spec.advertise_address)
    except ValueError as error:
        raise InvalidFieldError(f"{where} must be an IP address") from error
    if address.is_unspecified or address.is_multicast or getattr(address, "scope_id", None):
        raise InvalidFieldError(f"{where} must be a unicast address without zone")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise InvalidFieldError(f"{where} must be written as an IPv4 address")
    if not 0 < spec.advertise_port < 65536:
        raise InvalidFieldError(
            f"spec.advertisePort: {spec.advertise_port} must be from 1 to 65535"
        )
    return str(address), spec.advertise_port


def _source(number: int, text: str) -> str:
    try:
        return str(ip_addresses.ip_network(text, strict=False))
    except ValueError as error:
        raise InvalidFieldError(
            f"spec.allowedSources[{number}]: {text!r} must be an IP address or CIDR range"
        ) from error


def hosted_claims(hosted: Any) -> Iterator[Key]:
    """Yield what an object claims exclusively, each as the bucket of all objects that claim it."""
    if not isinstance(hosted, api.HostedAPIServer):
        return
    parsed = parse_spec(hosted)
    for host in parsed.hosts:
        yield (HOST, host)
    if parsed.address:
        yield (ADDRESS, parsed.address)
    service = hosted.spec.service
    if not parsed.problem:
        yield (SERVICE, hosted.metadata.namespace, service.name, str(service.port))


def hosted_of_gateway(gateway: Key) -> Key:
    """Return the bucket of the objects that name a Gateway."""
    return ("@hosted-of", *gateway[1:])


def hosted_buckets(hosted: Any) -> Iterable[Key]:
    """Yield the index buckets of a HostedAPIServer."""
    yield HOSTED
    yield from hosted_claims(hosted)
    if isinstance(hosted, api.HostedAPIServer):
        for parent in hosted.spec.parent_refs:
            yield ("@hosted-of", parent.namespace or hosted.metadata.namespace, parent.name)
