"""Pipelines: from the IR of a Gateway to its data planes, one per kind of proxy.

A pipeline combines a back end with the transport of its output. A new kind of proxy needs a new
pipeline and a controller name by which GatewayClasses select it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect, Unsupported
from gatehouse.dataplane import features
from gatehouse.dataplane.delivery import DataPlaneReport, Delivery, InstanceCapabilities
from gatehouse.dataplane.file_set import FileSet
from gatehouse.dataplane.xds.resources import ResourceSet


class Versioned(Protocol):
    """Content that can be delivered."""

    @property
    def version(self) -> str:
        """Version, which depends only on the content."""


CapabilitiesT = TypeVar("CapabilitiesT")
ContentT = TypeVar("ContentT", bound=Versioned)
Generate = Callable[[ir.Gateway], tuple[ContentT, tuple[Unsupported, ...]]]


class Rendered(msgspec.Struct, frozen=True, eq=False):
    """Configuration generated for the data planes of a Gateway."""

    version: str
    unsupported: tuple[Unsupported, ...]
    publish: Callable[[], None]
    """Starts the delivery."""


class Pipeline(Protocol):
    """Interface of the publisher to one kind of data plane."""

    def render(self, gateway: ir.Gateway) -> Rendered | None:
        """Render a Gateway. Return the same object for the same Gateway.

        None before an instance has connected, since instances report their capabilities.
        """

    def trace(self, gateway: ir.Gateway, message: str) -> tuple[Suspect, ...]:
        """Return the parts of a Gateway that a proxy's error message is about; empty: unknown."""

    def report(self, name: str) -> DataPlaneReport:
        """Return the current report of a Gateway."""

    def withdraw(self, name: str) -> None:
        """Stop delivery for a Gateway."""


class _GatewayState(msgspec.Struct, Generic[CapabilitiesT, ContentT]):
    capabilities: CapabilitiesT
    generate: Generate[ContentT]
    source: ir.Gateway | None = None
    rendered: Rendered | None = None


def _no_trace(*_: object) -> tuple[Suspect, ...]:
    """Return nothing: an Envoy names the rejected resource, which has its origins."""
    return ()


class _Pipeline(Generic[CapabilitiesT, ContentT]):
    def __init__(
        self,
        delivery: Delivery[ContentT],
        capabilities: Callable[[Iterable[InstanceCapabilities]], CapabilitiesT | None],
        generator: Callable[[CapabilitiesT], Generate[ContentT]],
        tracer: Callable[[ir.Gateway, CapabilitiesT, str], tuple[Suspect, ...]] = _no_trace,
    ) -> None:
        self._delivery = delivery
        self._capabilities = capabilities
        self._generator = generator
        self._tracer = tracer
        self._states: dict[str, _GatewayState[CapabilitiesT, ContentT]] = {}

    def render(self, gateway: ir.Gateway) -> Rendered | None:
        name = gateway.name
        capabilities = self._capabilities(self._delivery.report(name).equipment)
        if capabilities is None:
            return None
        state = self._states.get(name)
        if state is None or state.capabilities != capabilities:
            state = self._states[name] = _GatewayState(capabilities, self._generator(capabilities))
        if state.rendered is None or state.source is not gateway:
            content, unsupported = state.generate(gateway)
            state.source = gateway
            state.rendered = Rendered(
                content.version, unsupported, lambda: self._delivery.publish(name, content)
            )
        return state.rendered

    def trace(self, gateway: ir.Gateway, message: str) -> tuple[Suspect, ...]:
        state = self._states.get(gateway.name)
        return self._tracer(gateway, state.capabilities, message) if state is not None else ()

    def report(self, name: str) -> DataPlaneReport:
        return self._delivery.report(name)

    def withdraw(self, name: str) -> None:
        self._states.pop(name, None)
        self._delivery.withdraw(name)


def nginx_pipeline(delivery: Delivery[FileSet]) -> Pipeline:
    """Return the pipeline to NGINX: files for the common capabilities of connected instances."""

    def capabilities(equipment: Iterable[InstanceCapabilities]) -> nginx.Capabilities | None:
        return nginx.Capabilities.common(
            nginx.Capabilities.parse(
                instance.proxy,
                instance.modules,
                named_endpoints=features.ENDPOINTS in instance.features,
                connectors=features.CONNECTORS in instance.features,
                authenticators=features.AUTHENTICATORS in instance.features,
                api_actions=features.API_ACTION in instance.features,
            )
            for instance in equipment
        )

    def generator(capabilities: nginx.Capabilities) -> Generate[FileSet]:
        back_end = nginx.Generator(capabilities)

        def generate(gateway: ir.Gateway) -> tuple[FileSet, tuple[Unsupported, ...]]:
            generated = back_end.generate(gateway)
            return generated.bundle, generated.unsupported

        return generate

    return _Pipeline(delivery, capabilities, generator, nginx.suspects)


def envoy_pipeline(delivery: Delivery[ResourceSet]) -> Pipeline:
    """Return the pipeline to Envoy: xDS resources."""

    def capabilities(equipment: Iterable[InstanceCapabilities]) -> envoy.Capabilities | None:
        agents = [instance.features for instance in equipment]
        if not agents:
            return None
        # The agent writes the system's CA certificates to this file where Envoy runs.
        return envoy.Capabilities(
            "system.pem",
            authenticators=all(features.ENVOY_AUTHENTICATOR in agent for agent in agents),
        )

    def generator(capabilities: envoy.Capabilities) -> Generate[ResourceSet]:
        back_end = envoy.Generator(capabilities)

        def generate(gateway: ir.Gateway) -> tuple[ResourceSet, tuple[Unsupported, ...]]:
            generated = back_end.generate(gateway)
            return generated.resources, generated.unsupported

        return generate

    return _Pipeline(delivery, capabilities, generator)
