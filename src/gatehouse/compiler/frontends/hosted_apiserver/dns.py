"""DNS records of HostedAPIServers, which point to the load balancers of their Gateways."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gatehouse.apis import core
from gatehouse.apis import hosted_api_servers as api
from gatehouse.compiler.frontends.gateway_api.listeners.addresses import gateway_addresses
from gatehouse.compiler.frontends.hosted_apiserver.attachment import (
    attachment_of,
    gateways_of_hosted,
)
from gatehouse.incremental.query import Ask, Key
from kube_base.types import ip_addresses

_SPECIAL = re.compile(rb"[^A-Za-z0-9_*.-]")


class DnsRecord(msgspec.Struct, frozen=True, order=True):
    """All records of one name and type."""

    name: str
    type: str
    """``A``, ``AAAA`` or ``CNAME``."""
    targets: tuple[str, ...]
    ttl: int
    """TTL in seconds."""


class Records(msgspec.Struct, frozen=True):
    """DNS records of one HostedAPIServer with ``spec.dns.publish``."""

    records: tuple[DnsRecord, ...]
    """Empty: no target is known now, and the published records stay."""


def _targets(ask: Ask, gateway: Key) -> tuple[str, ...]:
    """Return the external IP addresses of a Gateway, or one hostname if it has none."""
    requested = {address.value for address in ask.read(gateway).spec.addresses if address.value}
    addresses = [
        address
        for address in ask(gateway_addresses, gateway)
        if not requested or address in requested
    ]
    if addresses:
        return tuple(addresses)
    names = []
    for key in ask.read(("@service", gateway[1], gateway[2])):
        service = ask.read(key)
        if isinstance(service, core.Service):
            names += [ingress.hostname for ingress in service.status.load_balancer.ingress]
    return tuple(name for name in names if name)[:1]


def _targets_by_host(ask: Ask, key: Key) -> dict[str, tuple[str, ...]]:
    """Return the external targets of each hostname that a listener serves for an object."""
    gateways: dict[str, set[Key]] = {}
    for attached in ask(attachment_of, key).attachments:
        if attached.host:
            gateways.setdefault(attached.host, set()).add(attached.gateway)
    return {
        host: tuple(dict.fromkeys(one for key in sorted(keys) for one in ask(_targets, key)))
        for host, keys in gateways.items()
    }


def targets_of(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the external targets of all hostnames of a HostedAPIServer."""
    by_host = _targets_by_host(ask, key)
    return tuple(dict.fromkeys(target for targets in by_host.values() for target in targets))


def records(ask: Ask, key: Key) -> Records | None:
    """Return the records to publish for an object; None if it publishes none.

    A hostname that no listener serves for the object gets none: it may be that of another tenant.
    """
    hosted = ask.read(key)
    if not isinstance(hosted, api.HostedAPIServer) or not hosted.spec.dns.publish:
        return None
    if not ask(gateways_of_hosted, key):
        return None
    ttl = hosted.spec.dns.ttl_seconds
    return Records(
        tuple(
            record
            for host, targets in sorted(_targets_by_host(ask, key).items())
            for record in dns_records_for([host], targets, ttl)
        )
    )


def dns_records_for(hosts: Iterable[str], targets: Iterable[str], ttl: int) -> list[DnsRecord]:
    """Return the records from hosts to targets. Hostnames are ignored if there are addresses."""
    by_type: dict[str, list[str]] = {}
    for target in targets:
        by_type.setdefault(_type(target), []).append(target)
    if len(by_type) > 1:
        by_type.pop("CNAME", None)
    return [
        DnsRecord(host, kind, tuple(same_type if kind != "CNAME" else same_type[:1]), ttl)
        for host in sorted(set(hosts))
        for kind, same_type in sorted(by_type.items())
    ]


def zone_file(origin: str, dns_records: Iterable[DnsRecord], soa: str = "") -> str:
    """Return the records of a zone as a master file (RFC 1035, section 5).

    Records of other zones are ignored, and names that are longer than DNS allows. ``soa``: SOA
    record for the top of a complete zone; empty for a fragment.
    """
    origin = origin.lower().strip(".")
    lines = [f"$ORIGIN {origin}.", *([soa] if soa else []), *_lines(origin, dns_records)]
    return "".join(f"{line}\n" for line in lines)


def _lines(origin: str, dns_records: Iterable[DnsRecord]) -> Iterator[str]:
    for record in sorted(set(dns_records)):
        if record.name != origin and not record.name.endswith(f".{origin}"):
            continue
        name = record.name.removesuffix(origin).removesuffix(".")
        for target in record.targets:
            alias = record.type == "CNAME"
            if not _fits(record.name) or (alias and not _fits(target.removesuffix("."))):
                continue
            data = f"{_escaped(target.removesuffix('.'))}." if alias else target
            yield f"{_escaped(name) or '@'} {record.ttl} IN {record.type} {data}"


def _fits(name: str) -> bool:
    """Return whether the labels of a name have lengths that DNS allows."""
    labels = name.encode("utf-8", "replace").split(b".")
    return len(name.encode("utf-8", "replace")) <= 253 and all(0 < len(one) <= 63 for one in labels)


def _escaped(name: str) -> str:
    """Return a name with decimal escapes for bytes that have a meaning in a master file."""
    return _SPECIAL.sub(
        lambda byte: b"\\%03d" % byte[0][0], name.encode("utf-8", "replace")
    ).decode()


def endpoint(name: tuple[str, str], desired: Records) -> dict[str, Any] | None:
    """Return the DNSEndpoint of an object (``externaldns.k8s.io/v1alpha1``), without its owner.

    None if there are no records: the existing DNSEndpoint stays unchanged.
    """
    if not desired.records:
        return None
    return {
        "apiVersion": "externaldns.k8s.io/v1alpha1",
        "kind": "DNSEndpoint",
        "metadata": {
            "namespace": name[0],
            "name": name[1],
            "labels": {"app.kubernetes.io/managed-by": "gatehouse"},
        },
        "spec": {
            "endpoints": [
                {
                    "dnsName": record.name,
                    "recordType": record.type,
                    "recordTTL": record.ttl,
                    "targets": list(record.targets),
                }
                for record in desired.records
            ]
        },
    }


def _type(target: str) -> str:
    try:
        return "A" if ip_addresses.ip_address(target).version == 4 else "AAAA"
    except ValueError:
        return "CNAME"
