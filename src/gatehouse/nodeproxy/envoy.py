"""Envoy configuration of the node proxy: a tunnel by HTTP CONNECT for each connection."""

from __future__ import annotations

import json
from typing import Any

from gatehouse.nodeproxy.options import IPAddress, NodeProxyOptions
from kube_base.types.ip_addresses import bracketed

DESTINATION_HEADER = "X-Gardener-Destination"

_BUFFER = 32 * 1024
_TYPES = "type.googleapis.com/envoy.extensions"
_IDLE = "86400s"
"""Idle timeout of a connection, because watches may be idle for long."""

_Part = dict[str, Any]


def envoy_configuration(options: NodeProxyOptions) -> str:
    """Return the configuration file. All values have been checked with the options."""
    limit = options.connections
    layer = {
        "overload": {"global_downstream_max_connections": limit},
    }
    return json.dumps(
        {
            "layered_runtime": {"layers": [{"name": "static", "static_layer": layer}]},
            "static_resources": {
                "listeners": [_listener(options, address) for address in options.addresses],
                "clusters": [_gateway(options)],
            },
        },
        indent=1,
    )


def _listener(options: NodeProxyOptions, address: IPAddress) -> _Part:
    tunnel: _Part = {"hostname": f"{bracketed(str(address))}:{options.port}"}
    if options.destination:
        header = {"key": DESTINATION_HEADER, "value": options.destination.replace("%", "%%")}
        tunnel["headers_to_add"] = [{"header": header}]
    proxy = {
        "@type": f"{_TYPES}.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "kube_apiserver",
        "cluster": "gateway",
        "idle_timeout": _IDLE,
        "tunneling_config": tunnel,
    }
    return {
        "name": f"kube-apiserver-{address.version}",
        "address": _socket(str(address), options.port),
        "per_connection_buffer_limit_bytes": _BUFFER,
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]}
        ],
    }


def _gateway(options: NodeProxyOptions) -> _Part:
    gateway = options.gateway
    endpoint = {"endpoint": {"address": _socket(gateway.host, gateway.port)}}
    version = gateway.address.version if gateway.address is not None else 0
    return {
        "name": "gateway",
        # A name is resolved again when its TTL has expired. The last address remains without it.
        "type": "STATIC" if version else "LOGICAL_DNS",
        **({} if version else {"dns_lookup_family": "ALL", "respect_dns_ttl": True}),
        "connect_timeout": "5s",
        "per_connection_buffer_limit_bytes": _BUFFER,
        "load_assignment": {
            "cluster_name": "gateway",
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": options.connections,
                    "max_pending_requests": options.connections,
                    "max_requests": options.connections,
                }
            ]
        },
        "upstream_connection_options": {
            "tcp_keepalive": {"keepalive_time": 55, "keepalive_interval": 55}
        },
    }


def _socket(host: str, port: int) -> _Part:
    return {"socket_address": {"address": host, "port_value": port}}
