"""DNS messages of the name server on the wire (RFC 1035, RFC 2782). No I/O.

The target of an SRV record is the endpoint's address as NGINX writes it (``10.0.0.5:8080``). So it
needs no table, and consistent hashing treats the server like one in the configuration.
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

DNS_ZONE = "gatehouse"
_SERVICE = "_endpoints._tcp"

DATAGRAM_BYTES = 4096
"""Datagram size that NGINX accepts, although it does not announce it. Larger responses go over TCP.
"""

ADDRESS_TTL_SECONDS = 86_400
"""TTL in seconds. The address is encoded in the name, so it never changes."""

_ZONE = dns.name.from_text(f"{DNS_ZONE}.")


def encode_srv_query(upstream: str) -> dns.message.Message:
    """Return the query for the servers of an upstream."""
    name = dns.name.from_text(f"{_SERVICE}.{upstream}.{DNS_ZONE}.")
    return dns.message.make_query(name, dns.rdatatype.SRV)


def encode_srv_response(query: dns.message.Message, endpoints: Endpoints) -> tuple[bytes, bytes]:
    """Return the response to a query of :func:`encode_srv_query`, for UDP and for TCP."""
    response = _response(query)
    if endpoints:
        rows = [f"1 {item.weight} {item.port} {_target(item.encoded)}" for item in endpoints]
        records = dns.rrset.from_text_list(query.question[0].name, 0, "IN", "SRV", rows)
        response.answer.append(records)
    else:
        response.set_rcode(dns.rcode.NXDOMAIN)
    message = response.to_wire(max_size=65535)
    if len(message) <= DATAGRAM_BYTES:
        return message, message
    response.answer.clear()
    response.flags |= dns.flags.TC
    return response.to_wire(), message


def _target(address: str) -> str:
    """Return an address as a domain name. The dots of an IPv4 address separate labels."""
    if address.startswith("["):
        return "".join(f"\\{ord(c):03d}" if not c.isalnum() else c for c in address) + "."
    return f"{address}."


def _response(query: dns.message.Message) -> dns.message.Message:
    response = dns.message.make_response(query)
    response.flags |= dns.flags.AA
    return response


def encode_default_response(data: bytes) -> bytes:
    """Return the response to a query that is not for a known upstream.

    A target gets its address, other names NXDOMAIN. A query for an unknown upstream gets no
    response: after NXDOMAIN NGINX would drop the endpoints it has, and an agent that has just
    started may not know that upstream yet.
    """
    try:
        query = dns.message.from_wire(data)
        question = query.question[0]
    except (dns.exception.DNSException, IndexError):
        return b""
    if question.rdtype == dns.rdatatype.SRV and question.name.is_subdomain(_ZONE):
        return b""
    response = _response(query)
    host = b".".join(question.name.labels[:-1]).decode("ascii", "replace").rpartition(":")[0]
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        response.set_rcode(dns.rcode.NXDOMAIN)
        return response.to_wire()
    kind = dns.rdatatype.A if address.version == 4 else dns.rdatatype.AAAA
    if question.rdtype == kind:
        records = dns.rrset.from_text(question.name, ADDRESS_TTL_SECONDS, "IN", kind, str(address))
        response.answer.append(records)
    return response.to_wire()
