"""Service of a Gateway's data plane. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.apis.data_plane_workload import ServiceOptions
from gatehouse.apis.objects import Object

Ports = tuple[tuple[int, str], ...]
"""Ports in ascending order, each with TCP or UDP."""

_FAMILIES = {"ipv4": ["IPv4"], "ipv6": ["IPv6"]}


def service_spec(
    ports: Ports,
    selector: Mapping[str, str],
    options: ServiceOptions,
    address: str,
    ip_family: str,
) -> Object:
    """Return the ``spec`` of the Service of a Gateway's data plane.

    ``selector``: labels of its Pods. ``address``: requested address of the Gateway, or empty.
    """
    result: Object = {
        "type": options.type,
        "selector": dict(selector),
        "ports": [_port(port, protocol, options) for port, protocol in ports],
    }
    if options.type != "ClusterIP":
        # Preserves client addresses; nodes without a data plane get no traffic.
        result["externalTrafficPolicy"] = options.external_traffic_policy or "Local"
    if options.type == "LoadBalancer":
        result |= _load_balancer_fields(options, address)
    if ip_family == "dual":
        result["ipFamilyPolicy"] = "PreferDualStack"
    elif ip_family in _FAMILIES:
        result |= {"ipFamilyPolicy": "SingleStack", "ipFamilies": _FAMILIES[ip_family]}
    return result


def _load_balancer_fields(options: ServiceOptions, address: str) -> Object:
    fields: Object = {}
    if load_balancer_ip := address or options.load_balancer_ip:
        fields["loadBalancerIP"] = load_balancer_ip
    if options.load_balancer_class:
        fields["loadBalancerClass"] = options.load_balancer_class
    if options.load_balancer_source_ranges:
        fields["loadBalancerSourceRanges"] = list(options.load_balancer_source_ranges)
    return fields


def _port(port: int, protocol: str, options: ServiceOptions) -> Object:
    result: Object = {
        "name": f"port-{port}" if protocol == "TCP" else f"port-{port}-udp",
        "port": port,
        "targetPort": port,
        "protocol": protocol,
    }
    node_port = next(
        (candidate.port for candidate in options.node_ports if candidate.listener_port == port),
        None,
    )
    if node_port is not None and options.type != "ClusterIP":
        result["nodePort"] = node_port
    return result


def needs_recreate(current: Mapping[str, Any], desired: Mapping[str, Any]) -> bool:
    """Return whether a Service must be recreated: its load balancer class is immutable."""
    current_spec, desired_spec = current.get("spec", {}), desired["spec"]
    if current_spec.get("type") != "LoadBalancer" or desired_spec["type"] != "LoadBalancer":
        return False
    return bool(
        current_spec.get("loadBalancerClass", "") != desired_spec.get("loadBalancerClass", "")
    )
