"""Inputs about limits that the data planes of a Gateway share: who serves them, and their use."""

from __future__ import annotations

from gatehouse.compiler.frontends.inputs import limit_use_key, sharing_key
from gatehouse.controller.compilation import Compilation
from gatehouse.controller.input_set import InputSet
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.incremental.query import Key


class LimitUseInputs:
    """Stores the reports of data planes about shared limits as inputs of the compilation."""

    def __init__(self, compilation: Compilation) -> None:
        self._compilation = compilation
        self._use = InputSet(compilation.put_input)
        self._sharing: set[Key] = set()
        """Gateways of which an instance served shares of limits."""

    def update(self, gateway: Key, report: DataPlaneReport) -> bool:
        """Store the report of a Gateway's data planes. Return whether a compile pass is needed."""
        if not report.sharing and gateway not in self._sharing:
            return False
        self._sharing.add(gateway)
        key = sharing_key(gateway)
        changed = self._compilation.put_input(key, report.sharing)
        inputs = {limit_use_key(gateway, name): use for name, use in report.limit_use.items()}
        return self._use.update(gateway, inputs) or (changed and self._compilation.reads(key))

    def forget(self, gateway: Key) -> None:
        """Remove the inputs of a Gateway."""
        self._use.update(gateway, {})
        self._sharing.discard(gateway)
        self._compilation.put_input(sharing_key(gateway), None)
