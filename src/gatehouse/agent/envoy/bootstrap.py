"""Bootstrap configuration of Envoy. Everything else comes from the relay over ADS."""

from __future__ import annotations

import json
from pathlib import Path

from gatehouse.agent.envoy import kube_metrics
from gatehouse.dataplane import features
from gatehouse.dataplane.xds.runtime_limits import runtime_layers

_RELAY = "gatehouse-relay"
"""The only static cluster of Envoy."""

PROBE = "gatehouse-probe"
"""Static listener for the agent's probes."""

START = "gatehouse-start"
"""Static listener without a port, and its route configuration. Envoy accepts no connections before
it has received that (:mod:`~gatehouse.agent.envoy.start_gate`)."""

_TYPES = "type.googleapis.com/"
_PROTOCOLS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER = "envoy.extensions.filters.http.router.v3.Router"
_ECHO = "envoy.extensions.filters.network.echo.v3.Echo"
_CONNECTIONS = "envoy.resource_monitors.global_downstream_max_connections"
_CONNECTIONS_CONFIG = (
    "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"
)


def bootstrap_config(
    node: str, service_cluster: str, relay: Path, admin: Path, probe: Path, max_connections: int
) -> str:
    """Return the bootstrap configuration in JSON.

    `relay`, `admin`, `probe`: Unix sockets of the relay, of Envoy's admin interface, and of the
    listener for the agent's probes.
    """
    return json.dumps(
        {
            "node": {
                "id": node,
                "cluster": service_cluster,
                "client_features": [features.RUNTIME_LIMITS],
            },
            "admin": {"address": _private(admin), "ignore_global_conn_limit": True},
            "static_resources": {
                "clusters": [_relay(relay)],
                "listeners": [_probe(probe), _start()],
            },
            "dynamic_resources": _dynamic(),
            "layered_runtime": runtime_layers(),
            # A third of the memory of idle clusters is unused statistics.
            "deferred_stat_options": {"enable_deferred_creation_stats": True},
            "stats_config": {
                "histogram_bucket_settings": [_buckets()],
                "stats_matcher": {
                    "exclusion_list": {"patterns": [{"prefix": f"listener.{PROBE}"}]}
                },
            },
            "overload_manager": _overload(max_connections),
        },
        indent=1,
    )


def _private(path: Path) -> dict[str, object]:
    return {"pipe": {"path": str(path), "mode": 0o600}}


def _probe(path: Path) -> dict[str, object]:
    """Return a listener that repeats what it receives, whatever the load."""
    echo = {"name": "envoy.filters.network.echo", "typed_config": {"@type": f"{_TYPES}{_ECHO}"}}
    return {
        "name": PROBE,
        "stat_prefix": PROBE,
        "address": _private(path),
        "ignore_global_conn_limit": True,
        "bypass_overload_manager": True,
        # Each worker gets as many connections as the others.
        "connection_balance_config": {"exact_balance": {}},
        "filter_chains": [{"filters": [echo]}],
    }


def _start() -> dict[str, object]:
    """Return the listener whose routes Envoy waits for."""
    source = {
        "resource_api_version": "V3",
        "initial_fetch_timeout": "0s",
        "api_config_source": _delta_service(),
    }
    router = {"name": "router", "typed_config": {"@type": f"{_TYPES}{_ROUTER}"}}
    manager = {
        "@type": f"{_TYPES}{_MANAGER}",
        "stat_prefix": START,
        "rds": {"route_config_name": START, "config_source": source},
        "http_filters": [router],
    }
    return {
        "name": START,
        "stat_prefix": START,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "bind_to_port": False,
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def _relay(path: Path) -> dict[str, object]:
    endpoint = {"endpoint": {"address": {"pipe": {"path": str(path)}}}}
    http2: dict[str, object] = {"explicit_http_config": {"http2_protocol_options": {}}}
    return {
        "name": _RELAY,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": _RELAY,
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
        "typed_extension_protocol_options": {
            _PROTOCOLS: {"@type": f"{_TYPES}{_PROTOCOLS}", **http2}
        },
    }


def _dynamic() -> dict[str, object]:
    # Envoy is not ready before it has received a configuration, however long that takes.
    source = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
    return {"ads_config": _delta_service(), "cds_config": source, "lds_config": source}


def _delta_service() -> dict[str, object]:
    # The relay is local, and unavailable only while the agent restarts.
    pauses = {"base_interval": "0.05s", "max_interval": "0.5s"}
    service = {"cluster_name": _RELAY, "retry_policy": {"retry_back_off": pauses}}
    return {
        "api_type": "DELTA_GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": service}],
    }


def _buckets() -> dict[str, object]:
    # Envoy's default has twice as many, most in ranges without kube-apiserver responses.
    return {
        "match": {"prefix": kube_metrics.KUBE_STATS_PREFIX},
        "buckets": list(kube_metrics.BUCKETS),
    }


def _overload(max_connections: int) -> dict[str, object]:
    return {
        "resource_monitors": [
            {
                "name": _CONNECTIONS,
                "typed_config": {
                    "@type": f"{_TYPES}{_CONNECTIONS_CONFIG}",
                    "max_active_downstream_connections": max_connections,
                },
            }
        ]
    }
