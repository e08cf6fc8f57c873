"""The Service in front of a Gateway's data planes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.apis.data_plane_workload import ServiceOptions

Object = dict[str, Any]

Ports = tuple[tuple[int, str], ...]
"""Ports to serve, ascending, each with TCP or UDP."""

_FAMILIES = {"ipv4": ["IPv4"], "ipv6": ["IPv6"]}


def spec(
    ports: Ports,
    selector: Mapping[str, str],
    options: ServiceOptions,
    address: str,
    ip_family: str,
) -> Object:
    """Give the ``spec``. ``address``: the one that the Gateway asks for, or empty."""
    made: Object = {
        "type": options.type,
        "selector": dict(selector),
        "ports": [_port(port, protocol, options) for port, protocol in ports],
    }
    if options.type != "ClusterIP":
        # Clients keep their address; a node without a data plane is not asked.
        made["externalTrafficPolicy"] = options.external_traffic_policy or "Local"
    if options.type == "LoadBalancer":
        made |= _balanced(options, address)
    if ip_family == "dual":
        made["ipFamilyPolicy"] = "PreferDualStack"
    elif ip_family in _FAMILIES:
        made |= {"ipFamilyPolicy": "SingleStack", "ipFamilies": _FAMILIES[ip_family]}
    return made


def _balanced(options: ServiceOptions, address: str) -> Object:
    made: Object = {}
    if asked := address or options.load_balancer_ip:
        made["loadBalancerIP"] = asked
    if options.load_balancer_class:
        made["loadBalancerClass"] = options.load_balancer_class
    if options.load_balancer_source_ranges:
        made["loadBalancerSourceRanges"] = list(options.load_balancer_source_ranges)
    return made


def _port(port: int, protocol: str, options: ServiceOptions) -> Object:
    made: Object = {
        "name": f"port-{port}" if protocol == "TCP" else f"port-{port}-udp",
        "port": port,
        "targetPort": port,
        "protocol": protocol,
    }
    asked = next((each.port for each in options.node_ports if each.listener_port == port), None)
    if asked is not None and options.type != "ClusterIP":
        made["nodePort"] = asked
    return made


def needs_recreate(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a Service cannot become what is wanted: its class never changes, once it has one."""
    now, then = current.get("spec", {}), wanted["spec"]
    if now.get("type") != "LoadBalancer" or then["type"] != "LoadBalancer":
        return False
    return bool(now.get("loadBalancerClass", "") != then.get("loadBalancerClass", ""))
