"""Service of a Gateway's data plane. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gatehouse.apis.data_plane_workload import ServiceOptions
from gatehouse.apis.gateway import CLUSTER_ROUTABILITY, EXPOSED_ROUTABILITY
from kube_base.types.objects import Object

Ports = tuple[tuple[int, str], ...]
"""Ports in ascending order, each with TCP or UDP."""

_FAMILIES = {"ipv4": ["IPv4"], "ipv6": ["IPv6"]}


def service_spec(
    ports: Ports,
    selector: Mapping[str, str],
    options: ServiceOptions,
    addresses: Sequence[Mapping[str, Any]],
    ip_family: str,
) -> Object:
    """Return the ``spec`` of the Service of a Gateway's data plane.

    ``selector``: labels of its Pods. ``addresses``: entries of the Gateway's ``spec.addresses``.
    """
    exposed = [a for a in addresses if a.get("routability", "") in EXPOSED_ROUTABILITY]
    internal = [a for a in addresses if a.get("routability") == CLUSTER_ROUTABILITY]
    service_type = options.type if exposed or not addresses else "ClusterIP"
    result: Object = {
        "type": service_type,
        "selector": dict(selector),
        "ports": [_port(port, protocol, options, service_type) for port, protocol in ports],
    }
    if cluster_ip := _first_value(internal):
        result["clusterIP"] = cluster_ip
    if service_type != "ClusterIP":
        # Preserves client addresses; nodes without a data plane get no traffic.
        result["externalTrafficPolicy"] = options.external_traffic_policy or "Local"
    if service_type == "LoadBalancer":
        result |= _load_balancer_fields(options, _first_value(exposed))
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


def _first_value(addresses: Iterable[Mapping[str, Any]]) -> str:
    return next((address["value"] for address in addresses if address.get("value")), "")


def _port(port: int, protocol: str, options: ServiceOptions, service_type: str) -> Object:
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
    if node_port is not None and service_type != "ClusterIP":
        result["nodePort"] = node_port
    return result


def with_current_cluster_ip(
    current: Mapping[str, Any], desired: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a Service with the cluster IP that it has, which is immutable.

    A Service that was deleted for another cluster IP would be lost if that is not free.
    """
    cluster_ip = current.get("spec", {}).get("clusterIP")
    if not cluster_ip or "clusterIP" not in desired["spec"]:
        return desired
    return {**desired, "spec": {**desired["spec"], "clusterIP": cluster_ip}}


def needs_recreate(current: Mapping[str, Any], desired: Mapping[str, Any]) -> bool:
    """Return whether a Service must be recreated: its load balancer class is immutable."""
    current_spec, desired_spec = current.get("spec", {}), desired["spec"]
    if current_spec.get("type") != "LoadBalancer" or desired_spec["type"] != "LoadBalancer":
        return False
    return bool(
        current_spec.get("loadBalancerClass", "") != desired_spec.get("loadBalancerClass", "")
    )
