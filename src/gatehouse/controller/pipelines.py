"""Pipelines: from a back end to its data planes, one per kind of proxy.

A pipeline combines a back end with the transport of its output. A new kind of proxy needs a new
pipeline and a controller name by which GatewayClasses select it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.outputs import OutputQuery
from gatehouse.dataplane import features
from gatehouse.dataplane.delivery import Delivery, InstanceCapabilities
from gatehouse.dataplane.file_set import FileSet
from gatehouse.dataplane.xds.resources import ResourceSet

CapabilitiesT = TypeVar("CapabilitiesT")
ContentT = TypeVar("ContentT")


def _no_trace(*_: object) -> tuple[Suspect, ...]:
    """Return nothing: an Envoy names the rejected resource, which has its origins."""
    return ()


class Pipeline(msgspec.Struct, Generic[CapabilitiesT, ContentT], frozen=True):
    """A back end and the transport of its output."""

    output: OutputQuery
    """Query of the back end for everything that a gateway needs."""
    delivery: Delivery[ContentT]
    common_capabilities: Callable[[frozenset[InstanceCapabilities]], CapabilitiesT | None]
    """Returns the capabilities that instances have in common; None without instances."""
    tracer: Callable[[ir.GatewayConfiguration, CapabilitiesT, str], tuple[Suspect, ...]] = _no_trace

    def capabilities(self, name: str) -> CapabilitiesT | None:
        """Return the capabilities of the connected instances of a gateway; None without any."""
        return self.common_capabilities(self.delivery.report(name).equipment)

    def trace(
        self, name: str, gateway: ir.GatewayConfiguration, message: str
    ) -> tuple[Suspect, ...]:
        """Return the parts of a gateway that a proxy's error message is about; empty: unknown."""
        capabilities = self.capabilities(name)
        return self.tracer(gateway, capabilities, message) if capabilities is not None else ()


AnyPipeline = Pipeline[Any, Any]


def nginx_pipeline(delivery: Delivery[FileSet]) -> Pipeline[nginx.NginxCapabilities, FileSet]:
    """Return the pipeline to NGINX: files for the common capabilities of connected instances."""
    return Pipeline(nginx.generate_files, delivery, _nginx_capabilities, nginx.suspects)


@lru_cache
def _nginx_capabilities(
    instances: frozenset[InstanceCapabilities],
) -> nginx.NginxCapabilities | None:
    return nginx.NginxCapabilities.common(
        nginx.NginxCapabilities.parse(
            instance.proxy,
            instance.modules,
            named_endpoints=features.ENDPOINTS in instance.features,
            connectors=features.CONNECTORS in instance.features,
            authenticators=features.AUTHENTICATORS in instance.features,
            pickers=features.PICKERS in instance.features,
            access_log=features.LOG_FORWARDING in instance.features,
            traces=features.TRACE_MODULE in instance.features,
            failure_causes=features.FAILURE_CAUSES in instance.features,
            api_actions=features.API_ACTION in instance.features,
        )
        for instance in instances
    )


def envoy_pipeline(
    delivery: Delivery[ResourceSet],
) -> Pipeline[envoy.EnvoyCapabilities, ResourceSet]:
    """Return the pipeline to Envoy: xDS resources."""
    return Pipeline(envoy.generate_resources, delivery, _envoy_capabilities)


@lru_cache
def _envoy_capabilities(
    instances: frozenset[InstanceCapabilities],
) -> envoy.EnvoyCapabilities | None:
    agents = [instance.features for instance in instances]
    if not agents:
        return None
    # The agent writes the system's CA certificates to this file where Envoy runs.
    return envoy.EnvoyCapabilities(
        "system.pem",
        authenticators=all(features.ENVOY_AUTHENTICATOR in agent for agent in agents),
        request_counts=all(features.ENVOY_REQUEST_COUNTS in agent for agent in agents),
        connection_counts=all(features.ENVOY_CONNECTION_COUNTS in agent for agent in agents),
        runtime_limits=all(features.RUNTIME_LIMITS in agent for agent in agents),
    )
