"""Pipelines: from a back end to its data planes, one per kind of proxy.

A pipeline combines a back end with the transport of its output. A new kind of proxy needs a new
pipeline and a controller name by which GatewayClasses select it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    common_capabilities: Callable[[Iterable[InstanceCapabilities]], CapabilitiesT | None]
    """Returns the capabilities that instances have in common; None without instances."""
    tracer: Callable[[ir.Gateway, CapabilitiesT, str], tuple[Suspect, ...]] = _no_trace

    def capabilities(self, name: str) -> CapabilitiesT | None:
        """Return the capabilities of the connected instances of a gateway; None without any."""
        return self.common_capabilities(self.delivery.report(name).equipment)

    def trace(self, gateway: ir.Gateway, message: str) -> tuple[Suspect, ...]:
        """Return the parts of a gateway that a proxy's error message is about; empty: unknown."""
        capabilities = self.capabilities(gateway.name)
        return self.tracer(gateway, capabilities, message) if capabilities is not None else ()


AnyPipeline = Pipeline[Any, Any]


def nginx_pipeline(delivery: Delivery[FileSet]) -> Pipeline[nginx.Capabilities, FileSet]:
    """Return the pipeline to NGINX: files for the common capabilities of connected instances."""
    return Pipeline(nginx.output, delivery, _nginx_capabilities, nginx.suspects)


def _nginx_capabilities(instances: Iterable[InstanceCapabilities]) -> nginx.Capabilities | None:
    return nginx.Capabilities.common(
        nginx.Capabilities.parse(
            instance.proxy,
            instance.modules,
            named_endpoints=features.ENDPOINTS in instance.features,
            connectors=features.CONNECTORS in instance.features,
            authenticators=features.AUTHENTICATORS in instance.features,
            api_actions=features.API_ACTION in instance.features,
        )
        for instance in instances
    )


def envoy_pipeline(delivery: Delivery[ResourceSet]) -> Pipeline[envoy.Capabilities, ResourceSet]:
    """Return the pipeline to Envoy: xDS resources."""
    return Pipeline(envoy.output, delivery, _envoy_capabilities)


def _envoy_capabilities(instances: Iterable[InstanceCapabilities]) -> envoy.Capabilities | None:
    agents = [instance.features for instance in instances]
    if not agents:
        return None
    # The agent writes the system's CA certificates to this file where Envoy runs.
    return envoy.Capabilities(
        "system.pem",
        authenticators=all(features.ENVOY_AUTHENTICATOR in agent for agent in agents),
    )
