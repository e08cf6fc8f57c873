"""Identifiers of the wire format keep their values, since agents of other versions compare them."""

from __future__ import annotations

from gatehouse.agent import sidecars
from gatehouse.dataplane import features
from gatehouse.dataplane.xds import resources
from gatehouse.sidecars.authenticator import config as authenticator
from gatehouse.sidecars.base import control
from gatehouse.sidecars.picker import config as picker
from gatehouse.sidecars.reviewer import config as reviewer
from gatehouse.sidecars.tls_connector import config as tls_connector

WIRE = {
    "CONNECTORS": "connectors",
    "AUTHENTICATORS": "authenticators",
    "PICKERS": "pickers",
    "ENDPOINTS": "endpoints",
    "API_ACTION": "api-action",
    "RELAY": "gatehouse.relay",
    "ENVOY_AUTHENTICATOR": "gatehouse.authenticator",
    "ENVOY_REVIEWER": "gatehouse.reviewer",
    "ENVOY_REQUEST_COUNTS": "gatehouse.request-counts",
    "ENVOY_CONNECTION_COUNTS": "gatehouse.connection-counts",
    "RUNTIME_LIMITS": "gatehouse.runtime-limits",
    "LIMIT_SHARES": "gatehouse.limit-shares",
    "LOG_FORWARDING": "access-log",
    "FAILURE_CAUSES": "failure-causes",
    "TRACE_MODULE": "traces",
    "NGINX_REJECTED": "NGINX rejected the configuration",
    "SIDECAR_CONFIG_TYPE": "gatehouse.companion.Description",
    "HEALTH_TYPE": "gatehouse.agent.Health",
    "TRIALS": "trials",
    "ENVOY_TRIALS": "gatehouse.trials",
}


def test_features_keep_their_identifiers() -> None:
    assert {name: value for name, value in vars(features).items() if name.isupper()} == WIRE


def test_sidecar_config_keeps_its_type_url() -> None:
    assert (
        resources.SIDECAR_CONFIG_TYPE_URL == "type.googleapis.com/gatehouse.companion.Description"
    )


def test_sidecars_keep_files_and_sockets() -> None:
    assert tls_connector.CONNECTORS_FILE == "gatehouse/connectors.json"
    assert authenticator.AUTHENTICATORS_FILE == "gatehouse/authenticators.json"
    assert reviewer.REVIEWER_FILE == "gatehouse/reviewer.json"
    assert reviewer.REVIEWER_SOCKET == "reviewer.sock"
    assert picker.POOLS_FILE == "gatehouse/pools.json"
    assert picker.POOL_SOCKETS == "pools"
    assert control.CONTROL_SOCKET == "control.sock"
    assert (tls_connector.CONNECTOR_SOCKETS, authenticator.AUTHENTICATOR_SOCKETS) == (
        "connectors",
        "authenticators",
    )


def test_sidecars_keep_their_names() -> None:
    assert [kind.name for kind in (*sidecars.NGINX_SIDECARS, sidecars.REVIEWER_SIDECAR)] == [
        "connector",
        "authenticator",
        "picker",
        "reviewer",
    ]
