"""Provisioning plan of a Gateway, computed from its objects. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from gatehouse.compiler.frontends import gateway_api
from gatehouse.controller.provisioner.manifests import ProvisioningPlan
from gatehouse.controller.provisioner.pod import ProxyKind
from gatehouse.incremental.query import Ask, Key

PROXIES: Mapping[str, ProxyKind] = {gateway_api.NGINX: "nginx", gateway_api.ENVOY: "envoy"}
"""Proxy by ``controllerName`` of the GatewayClass."""


def plan_provisioning(ask: Ask, gateway: Key) -> ProvisioningPlan:
    """Return the provisioning plan of a Gateway that this controller manages."""
    options = ask(gateway_api.provisioning, gateway)
    return ProvisioningPlan(
        ask(gateway_api.service_ports, gateway),
        PROXIES[ask(gateway_api.class_controller, gateway)],
        options.workload,
        options.ip_family,
        options.log_level,
        options.metrics_port,
        options.waiting,
    )
