"""What is to be provisioned for each Gateway, of what its objects say. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gatehouse.compiler.frontends import gateway_api
from gatehouse.controller.provisioner.manifests import Plan
from gatehouse.controller.provisioner.pod import Proxy
from gatehouse.incremental.query import Ask, Key

PROXIES: Mapping[str, Proxy] = {gateway_api.NGINX: "nginx", gateway_api.ENVOY: "envoy"}
"""What serves the Gateways of each controller's classes."""


def plan(ask: Ask, gateway: Key) -> Plan:
    """Give what a Gateway that is ours is to have."""
    asked = ask(gateway_api.provisioning, gateway)
    return Plan(
        ask(gateway_api.service_ports, gateway),
        PROXIES[ask(gateway_api.controller_of, gateway)],
        asked.workload,
        asked.ip_family,
        asked.log_level,
        asked.waiting,
    )
