"""Lines: from a Gateway's IR to its data planes, for each kind of data plane.

A line knows one back end and the transport of what that makes. A new kind of data plane is a new
line, and a controller's name by which GatewayClasses choose it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.ir import gateway as ir
from gatehouse.dataplane import features
from gatehouse.dataplane.delivery import DataPlaneReport, Delivery, InstanceCapabilities
from gatehouse.dataplane.file_set import FileSet
from gatehouse.dataplane.xds.resources import ResourceSet

Unsupported = tuple[tuple[str, str], ...]
"""Names of routes, or ``port/…`` and ``policy/…``, and why they are not served as asked."""


class Versioned(Protocol):
    """What is delivered."""

    @property
    def version(self) -> str:
        """Depends on the content alone."""


Able = TypeVar("Able")
Content = TypeVar("Content", bound=Versioned)
Generate = Callable[[ir.Gateway], tuple[Content, Unsupported]]


class Rendered(msgspec.Struct, frozen=True, eq=False):
    """What the data planes of a Gateway are to have."""

    version: str
    unsupported: Unsupported
    publish: Callable[[], None]
    """Has it delivered."""


class Pipeline(Protocol):
    """What the publisher asks of a kind of data plane."""

    def render(self, gateway: ir.Gateway) -> Rendered | None:
        """Render a Gateway; give the same object for the same Gateway.

        None before an instance has connected: only it says which proxy there is.
        """

    def report(self, name: str) -> DataPlaneReport:
        """Give the present report of a Gateway."""

    def withdraw(self, name: str) -> None:
        """Deliver nothing more for a Gateway."""


class _Known(msgspec.Struct, Generic[Able, Content]):
    able: Able
    generate: Generate[Content]
    source: ir.Gateway | None = None
    rendered: Rendered | None = None


class _Line(Generic[Able, Content]):
    def __init__(
        self,
        delivery: Delivery[Content],
        able: Callable[[Iterable[InstanceCapabilities]], Able | None],
        generator: Callable[[Able], Generate[Content]],
    ) -> None:
        self._delivery = delivery
        self._able = able
        self._generator = generator
        self._known: dict[str, _Known[Able, Content]] = {}

    def render(self, gateway: ir.Gateway) -> Rendered | None:
        name = gateway.name
        able = self._able(self._delivery.report(name).equipment)
        if able is None:
            return None
        known = self._known.get(name)
        if known is None or known.able != able:
            known = self._known[name] = _Known(able, self._generator(able))
        if known.rendered is None or known.source is not gateway:
            content, unsupported = known.generate(gateway)
            known.source = gateway
            known.rendered = Rendered(
                content.version, unsupported, lambda: self._delivery.publish(name, content)
            )
        return known.rendered

    def report(self, name: str) -> DataPlaneReport:
        return self._delivery.report(name)

    def withdraw(self, name: str) -> None:
        self._known.pop(name, None)
        self._delivery.withdraw(name)


def nginx_pipeline(delivery: Delivery[FileSet]) -> Pipeline:
    """Give the line to NGINX: files, for what the oldest connected NGINX can do."""

    def able(equipment: Iterable[InstanceCapabilities]) -> nginx.Capabilities | None:
        return nginx.Capabilities.common(
            nginx.Capabilities.parse(
                each.proxy,
                each.modules,
                named_endpoints=features.ENDPOINTS in each.features,
                connectors=features.CONNECTORS in each.features,
                authenticators=features.AUTHENTICATORS in each.features,
                api_actions=features.API_ACTION in each.features,
            )
            for each in equipment
        )

    def generator(capabilities: nginx.Capabilities) -> Generate[FileSet]:
        made = nginx.Generator(capabilities)

        def generate(gateway: ir.Gateway) -> tuple[FileSet, Unsupported]:
            generated = made.generate(gateway)
            return generated.bundle, generated.unsupported

        return generate

    return _Line(delivery, able, generator)


def envoy_pipeline(delivery: Delivery[ResourceSet]) -> Pipeline:
    """Give the line to Envoy: resources."""

    def able(equipment: Iterable[InstanceCapabilities]) -> envoy.Capabilities | None:
        agents = [each.features for each in equipment]
        if not agents:
            return None
        # The agent has the authorities that its machine trusts in the directory where Envoy runs.
        return envoy.Capabilities(
            "system.pem",
            authenticators=all(features.ENVOY_AUTHENTICATOR in agent for agent in agents),
        )

    def generator(capabilities: envoy.Capabilities) -> Generate[ResourceSet]:
        made = envoy.Generator(capabilities)

        def generate(gateway: ir.Gateway) -> tuple[ResourceSet, Unsupported]:
            generated = made.generate(gateway)
            return generated.resources, generated.unsupported

        return generate

    return _Line(delivery, able, generator)
