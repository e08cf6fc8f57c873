"""Comparable text of an endpoint assignment, confirmed or shown by Envoy's admin interface. No I/O.

Envoy shows neither versions of endpoints nor the message that it accepted, but the hosts that it
has: the addresses and their priorities are compared. Weights, localities and health are not,
because Envoy changes them itself or shows them only by worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from envoy.config.core.v3 import address_pb2
from envoy.config.endpoint.v3 import endpoint_pb2

from kube_base.types.ip_addresses import ip_address


def confirmed_endpoints(body: bytes) -> str:
    """Return the text of a serialised assignment, which Envoy has accepted."""
    assignment = endpoint_pb2.ClusterLoadAssignment.FromString(body)
    return _listed(
        f"{locality.priority} {_host(entry.endpoint.address)}"
        for locality in assignment.endpoints
        for entry in locality.lb_endpoints
    )


def dumped_endpoints(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name and the text of an assignment in a dump.

    Raises LookupError, TypeError or AttributeError if it is odd.
    """
    # json_format takes 0.3 ms for a host.
    return config["cluster_name"], _listed(
        f"{locality.get('priority', 0)} {_dumped_host(entry['endpoint']['address'])}"
        for locality in config.get("endpoints", ())
        for entry in locality.get("lb_endpoints", ())
    )


def _listed(hosts: Iterable[str]) -> str:
    # Not empty without hosts either, as no version is.
    return " ".join(["hosts", *sorted(set(hosts))])


def _host(address: address_pb2.Address) -> str:
    socket = address.socket_address
    return _socket(socket.address, socket.port_value) if socket.address else address.pipe.path


def _dumped_host(address: Mapping[str, Any]) -> str:
    socket = address.get("socket_address")
    if socket is not None:
        return _socket(socket["address"], socket["port_value"])
    path: str = address.get("pipe", {}).get("path", "")
    return path


def _socket(address: str, port: int) -> str:
    # Envoy writes IPv6 addresses in their shortest form.
    return f"{ip_address(address) if ':' in address else address} {port}"
