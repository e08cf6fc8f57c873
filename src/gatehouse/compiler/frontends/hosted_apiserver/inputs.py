"""What is read, and what one HostedAPIServer wants: its values in normal form, or what is wrong."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gatehouse.apis import hosted_api_servers as api
from gatehouse.apis import meta, resources
from gatehouse.compiler.frontends.gateway_api.inputs import STATUS_SUBJECTS
from gatehouse.incremental.query import Index, Key

KIND = "HostedAPIServer"
KINDS: tuple[resources.Resource, ...] = (resources.HOSTED_API_SERVERS,)
"""The resources to watch."""

HOSTED: Key = ("@hosted",)
"""All of them."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Wanted(msgspec.Struct, frozen=True):
    """What an object wants, in normal form."""

    hosts: tuple[str, ...] = ()
    """Lower case, without a dot at the end, distinct, in the object's order."""
    address: str = ""
    """IPv4 or IPv6 in canonical text; empty for none."""
    port: int = 443
    sources: tuple[str, ...] = ()
    """CIDR ranges, sorted and distinct."""
    problem: str = ""
    """Names the field and says what is wrong; nothing is served then."""


class InvalidFieldError(ValueError):
    """A value that cannot be."""


def decode(kind: str, raw: Mapping[str, Any]) -> meta.Resource:
    """Read an object; never raises."""
    assert kind == KIND
    return meta.decode(api.HostedAPIServer, raw)


def wanted(found: Any) -> Wanted:
    """Give what an object wants."""
    if isinstance(found, meta.Malformed):
        return Wanted(problem=found.message)
    if not isinstance(found, api.HostedAPIServer):
        return Wanted()
    spec = found.spec
    if not spec.hosts:
        return Wanted(problem="spec.hosts: none is given")
    try:
        hosts = tuple(dict.fromkeys(map(_host, range(len(spec.hosts)), spec.hosts)))
        address, port = _advertised(spec)
        sources = {
            _source(number, each) for number, each in enumerate(spec.allowed_sources)
        }  # fmt: skip
        return Wanted(hosts, address, port, tuple(sorted(sources)))
    except InvalidFieldError as error:
        return Wanted(problem=str(error))


def _host(number: int, text: str) -> str:
    name = text.lower().removesuffix(".")
    where = f"spec.hosts[{number}]: {text!r}"
    if "*" in name:
        raise InvalidFieldError(
            f"{where}: wildcards are not served: each name leads to one cluster"
        )
    labels = name.split(".")
    if len(name) > 253 or len(labels) < 2 or not all(map(_LABEL.fullmatch, labels)):
        raise InvalidFieldError(f"{where} is no host name with a domain")
    if labels[-1].isdigit():
        raise InvalidFieldError(f"{where} is an address, not a name")
    return name


def _advertised(spec: api.Spec) -> tuple[str, int]:
    if not spec.advertise_address:
        return "", 443
    where = f"spec.advertiseAddress: {spec.advertise_address!r}"
    try:
        address = ipaddress.ip_address(spec.advertise_address)
    except ValueError as error:
        raise InvalidFieldError(f"{where} is no IP address") from error
    if address.is_unspecified or address.is_multicast or getattr(address, "scope_id", None):
        raise InvalidFieldError(f"{where} is not the address of one server")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise InvalidFieldError(f"{where}: IPv4 is to be written as IPv4")
    if not 0 < spec.advertise_port < 65536:
        raise InvalidFieldError(f"spec.advertisePort: {spec.advertise_port} is no port")
    return str(address), spec.advertise_port


def _source(number: int, text: str) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError as error:
        raise InvalidFieldError(
            f"spec.allowedSources[{number}]: {text!r} is neither an address nor a range"
        ) from error


def claims(found: Any) -> Iterator[Key]:
    """Give what an object wants to have for itself, each as the bucket of all that want it."""
    if not isinstance(found, api.HostedAPIServer):
        return
    known = wanted(found)
    for host in known.hosts:
        yield ("@hosted-host", host)
    if known.address:
        yield ("@hosted-address", known.address)
    service = found.spec.service
    if not known.problem:
        yield ("@hosted-service", found.metadata.namespace, service.name, str(service.port))


def of_gateway(gateway: Key) -> Key:
    """Give the bucket of those that name a Gateway."""
    return ("@hosted-of", *gateway[1:])


def _buckets(found: Any) -> Iterable[Key]:
    yield HOSTED
    yield STATUS_SUBJECTS
    yield from claims(found)
    if isinstance(found, api.HostedAPIServer):
        for parent in found.spec.parent_refs:
            yield ("@hosted-of", parent.namespace or found.metadata.namespace, parent.name)


INDEXES: Mapping[str, tuple[Index, ...]] = {KIND: (_buckets,)}
"""The index buckets, for :class:`gatehouse.query.Snapshot`."""
