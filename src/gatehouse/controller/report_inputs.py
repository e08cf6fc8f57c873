"""Inputs of the compilation that follow from the reports of data planes.

The state of `Programmed` and the quarantine are not among them: both keep more than an input.
"""

from __future__ import annotations

from collections.abc import Iterable

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.inputs import replicas_key
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.controller import outputs
from gatehouse.controller.compilation import Compilation
from gatehouse.controller.input_set import InputSet
from gatehouse.controller.limit_use import LimitUseInputs
from gatehouse.controller.publisher import Publisher
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.incremental.query import Key


class ReportInputs:
    """Stores the reports of Gateways as inputs of the compilation."""

    def __init__(self, compilation: Compilation, publisher: Publisher) -> None:
        self._compilation, self._publisher = compilation, publisher
        self._rejections = InputSet(compilation.put_input)
        self._unready_servers = InputSet(compilation.put_input)
        self._limit_use = LimitUseInputs(compilation)

    def update(
        self, key: Key, controller: str, report: DataPlaneReport, findings: Iterable[Unsupported]
    ) -> bool:
        """Store the report of a Gateway. Return whether a compile pass is needed.

        ``findings``: about what its quarantine leaves out.
        """
        rejected = (*outputs.rejections_of(report), *findings)
        unready = report.unready_servers
        servers = {gateway_api.unready_servers_key(key, name): unready[name] for name in unready}
        changed = (
            self._rejections.update(key, outputs.by_subject(key, rejected)),
            self._store_capabilities(key, controller),
            self._store_instances(key, report.names),
            self._limit_use.update(key, report),
            self._unready_servers.update(key, servers),
        )
        return any(changed)

    def _store_capabilities(self, key: Key, controller: str) -> bool:
        """Store the capabilities of a Gateway's instances. The last ones stay without any."""
        capabilities = self._publisher.capabilities(outputs.published_name(key), controller)
        input_key = outputs.capabilities_key(controller, key)
        return capabilities is not None and self._compilation.put_input(input_key, capabilities)

    def _store_instances(self, key: Key, names: tuple[str, ...]) -> bool:
        """Store the instances of a Gateway, among which rate limits are divided."""
        input_key = replicas_key(key)
        return self._compilation.put_input(input_key, names) and self._compilation.reads(input_key)

    def forget(self, key: Key) -> None:
        """Remove the inputs of a Gateway that does not exist any longer."""
        self._rejections.update(key, {})
        self._unready_servers.update(key, {})
        self._limit_use.forget(key)
        controllers = self._publisher.back_ends
        for input_key in (
            replicas_key(key),
            *(outputs.capabilities_key(controller, key) for controller in controllers),
        ):
            self._compilation.put_input(input_key, None)
