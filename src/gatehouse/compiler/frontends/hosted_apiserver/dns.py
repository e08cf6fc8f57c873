"""DNS records of HostedAPIServers, which point to the load balancers of their Gateways."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gatehouse.apis import core
from gatehouse.apis import hosted_api_servers as api
from gatehouse.compiler.frontends.gateway_api.listeners.addresses import (
    gateway_addresses,
    requested_addresses,
)
from gatehouse.compiler.frontends.hosted_apiserver.attachment import attachment_of, gateways_of
from gatehouse.compiler.frontends.hosted_apiserver.claims import parsed_spec
from gatehouse.incremental.query import Ask, Key


class Record(msgspec.Struct, frozen=True, order=True):
    """All records of one name and type."""

    name: str
    type: str
    """``A``, ``AAAA`` or ``CNAME``."""
    targets: tuple[str, ...]
    ttl: int
    """TTL in seconds."""


class Records(msgspec.Struct, frozen=True):
    """DNS records of one HostedAPIServer with ``spec.dns.publish``."""

    records: tuple[Record, ...]
    """Empty: no target is known now, and the published records stay."""


def targets(ask: Ask, gateway: Key) -> tuple[str, ...]:
    """Return the external IP addresses of a Gateway, or one hostname if it has none."""
    requested = ask(requested_addresses, gateway)
    found = [
        each for each in ask(gateway_addresses, gateway) if not requested or each in requested
    ]  # fmt: skip
    if found:
        return tuple(found)
    names = []
    for key in ask.read(("@service", gateway[1], gateway[2])):
        service = ask.read(key)
        if isinstance(service, core.Service):
            names += [each.hostname for each in service.status.load_balancer.ingress]
    return tuple(name for name in names if name)[:1]


def targets_of(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the external targets of a HostedAPIServer."""
    outside = {
        attached.gateway for attached in ask(attachment_of, key).attachments if attached.host
    }
    found = [each for gateway in sorted(outside) for each in ask(targets, gateway)]
    return tuple(dict.fromkeys(found))


def records(ask: Ask, key: Key) -> Records | None:
    """Return the records to publish for an object; None if it publishes none."""
    found = ask.read(key)
    if not isinstance(found, api.HostedAPIServer) or not found.spec.dns.publish:
        return None
    if not ask(gateways_of, key):
        return None
    built = dns_records_for(
        ask(parsed_spec, key).hosts, ask(targets_of, key), found.spec.dns.ttl_seconds
    )
    return Records(tuple(built))


def dns_records_for(hosts: Iterable[str], targets: Iterable[str], ttl: int) -> list[Record]:
    """Return the records from hosts to targets. Hostnames are ignored if there are addresses."""
    by_type: dict[str, list[str]] = {}
    for each in targets:
        by_type.setdefault(_type(each), []).append(each)
    if len(by_type) > 1:
        by_type.pop("CNAME", None)
    return [
        Record(host, kind, tuple(found if kind != "CNAME" else found[:1]), ttl)
        for host in sorted(set(hosts))
        for kind, found in sorted(by_type.items())
    ]


def zone(origin: str, found: Iterable[Record], soa: str = "") -> str:
    """Return the records of a zone as a master file (RFC 1035, section 5).

    Records of other zones are ignored. ``soa``: SOA record for the top of a complete zone; empty
    for a fragment.
    """
    origin = origin.lower().strip(".")
    lines = [f"$ORIGIN {origin}.", *([soa] if soa else []), *_lines(origin, found)]
    return "".join(f"{line}\n" for line in lines)


def _lines(origin: str, found: Iterable[Record]) -> Iterator[str]:
    for each in sorted(set(found)):
        if each.name != origin and not each.name.endswith(f".{origin}"):
            continue
        name = each.name.removesuffix(origin).removesuffix(".") or "@"
        for target in each.targets:
            shown = f"{target.rstrip('.')}." if each.type == "CNAME" else target
            yield f"{name} {each.ttl} IN {each.type} {shown}"


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
                    "dnsName": each.name,
                    "recordType": each.type,
                    "recordTTL": each.ttl,
                    "targets": list(each.targets),
                }
                for each in desired.records
            ]
        },
    }


def _type(target: str) -> str:
    try:
        return "A" if ipaddress.ip_address(target).version == 4 else "AAAA"
    except ValueError:
        return "CNAME"
