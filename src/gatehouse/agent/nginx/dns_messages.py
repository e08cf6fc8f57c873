"""Questions and answers of the name server as they are on the wire (RFC 1035, RFC 2782). Pure.

A server's target is its address as NGINX writes it (``10.0.0.5:8080``): so it needs no table, and
consistent hashing places the server where it would place one of the configuration.
"""

from __future__ import annotations

import ipaddress

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

from gatehouse.dataplane.endpoints import Endpoints

ZONE = "gatehouse"
SERVICE = "_endpoints._tcp"

DATAGRAM_BYTES = 4096
"""What NGINX takes in one datagram, though it does not say so; more is fetched over TCP."""

ADDRESS_TTL = 86_400
"""A target's address is its name, and never changes."""

_ZONE = dns.name.from_text(f"{ZONE}.")


def encode_srv_query(upstream: str) -> dns.message.Message:
    """Give the question for the servers of an upstream."""
    name = dns.name.from_text(f"{SERVICE}.{upstream}.{ZONE}.")
    return dns.message.make_query(name, dns.rdatatype.SRV)


def encode_srv_response(asked: dns.message.Message, endpoints: Endpoints) -> tuple[bytes, bytes]:
    """Give the answer to a question of :func:`question`, for a datagram and for a stream."""
    response = _response(asked)
    if endpoints:
        rows = [f"1 {each.weight} {each.port} {_target(each.encoded)}" for each in endpoints]
        found = dns.rrset.from_text_list(asked.question[0].name, 0, "IN", "SRV", rows)
        response.answer.append(found)
    else:
        response.set_rcode(dns.rcode.NXDOMAIN)
    whole = response.to_wire(max_size=65535)
    if len(whole) <= DATAGRAM_BYTES:
        return whole, whole
    response.answer.clear()
    response.flags |= dns.flags.TC
    return response.to_wire(), whole


def _target(written: str) -> str:
    """Give an address as a name: an IPv4 one has its dots between labels, as every name has."""
    if written.startswith("["):
        return "".join(f"\\{ord(c):03d}" if not c.isalnum() else c for c in written) + "."
    return f"{written}."


def _response(query: dns.message.Message) -> dns.message.Message:
    response = dns.message.make_response(query)
    response.flags |= dns.flags.AA
    return response


def encode_default_response(data: bytes) -> bytes:
    """Answer what no upstream is named like: the address of a target, or that there is none.

    About an upstream that is not known nothing is said: at "no such name" NGINX would drop the
    endpoints it has, of which an agent that just began may not know yet.
    """
    try:
        query = dns.message.from_wire(data)
        asked = query.question[0]
    except (dns.exception.DNSException, IndexError):
        return b""
    if asked.rdtype == dns.rdatatype.SRV and asked.name.is_subdomain(_ZONE):
        return b""
    response = _response(query)
    host = b".".join(asked.name.labels[:-1]).decode("ascii", "replace").rpartition(":")[0]
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        response.set_rcode(dns.rcode.NXDOMAIN)
        return response.to_wire()
    kind = dns.rdatatype.A if address.version == 4 else dns.rdatatype.AAAA
    if asked.rdtype == kind:
        found = dns.rrset.from_text(asked.name, ADDRESS_TTL, "IN", kind, str(address))
        response.answer.append(found)
    return response.to_wire()
