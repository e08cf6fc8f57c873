"""Output of back ends for external machines: queries on one engine for all machines.

Machines with an equal configuration and proxy have one output, which is generated once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from gatehouse.compiler.backends.fragments import Output
from gatehouse.compiler.backends.source import GatewaySource
from gatehouse.compiler.ir import gateway as ir
from gatehouse.controller.outputs import OutputQuery
from gatehouse.incremental.query import Ask, Engine, Key, Snapshot

log = structlog.get_logger("gatehouse.load_balancers")


class MachineConfiguration(msgspec.Struct, frozen=True):
    """Configuration of a machine."""

    proxy: str
    capabilities: Any
    """Those of its proxy; None before it has connected."""
    gateway: ir.GatewayConfiguration
    compiled: ir.GatewayConfiguration
    """The configuration before parts were held back."""


class MachineOutputs:
    """The outputs of all machines."""

    def __init__(self, queries: Mapping[str, OutputQuery]) -> None:
        """``queries``: for everything that a machine needs, by proxy."""
        self._queries = queries
        self._engine = Engine(Snapshot())
        self._inputs: dict[Key, Any] = {}

    def run(
        self, configurations: Mapping[str, MachineConfiguration]
    ) -> Mapping[str, Output[Any, Any] | None]:
        """Return the output for each machine by name.

        None before a machine has connected, and if its output cannot be generated.
        """
        sources = self._sources(configurations)
        with self._engine.compile() as ask:
            return {
                name: self._output(ask, configurations[name].proxy, source)
                for name, source in sources.items()
            }

    def _output(
        self, ask: Ask, proxy: str, source: GatewaySource | None
    ) -> Output[Any, Any] | None:
        if source is None:
            return None
        (output,) = ask.each(self._queries[proxy], (source,), _failed)
        return output

    def _sources(
        self, configurations: Mapping[str, MachineConfiguration]
    ) -> dict[str, GatewaySource | None]:
        """Store the inputs. Return the source of each machine; None before it has connected.

        The inputs of equal machines are those of the first of them.
        """
        inputs: dict[Key, Any] = {}
        sources: dict[str, GatewaySource | None] = {}
        known: defaultdict[str, list[tuple[MachineConfiguration, GatewaySource]]] = defaultdict(
            list
        )
        for name, configuration in sorted(configurations.items()):
            sources[name] = None
            if configuration.capabilities is None:
                continue
            balancer = configuration.gateway.name
            equal = (source for other, source in known[balancer] if other == configuration)
            source = next(equal, None)
            if source is None:
                keys: tuple[Key, Key] = ("IR", name), ("Capabilities", name)
                source = GatewaySource(balancer, _input, *keys)
                known[balancer].append((configuration, source))
                inputs |= zip(
                    keys, (configuration.gateway, configuration.capabilities), strict=True
                )
            sources[name] = source
        gone = self._inputs.keys() - inputs.keys()
        self._engine.commit({**inputs, **dict.fromkeys(gone)})
        self._inputs = inputs
        return sources


def _input(ask: Ask, key: Key) -> Any:
    return ask.read(key)


def _failed(source: GatewaySource, error: Exception) -> None:
    """Log the error. One load balancer must not stop the others."""
    log.error("configuration not generated", load_balancer=source.name, exc_info=error)
