"""Publishes the output of Gateways over the pipeline of their class and numbers the versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.compiler.backends.fragments import Output
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.outputs import OutputQuery
from gatehouse.controller.pipelines import AnyPipeline
from gatehouse.controller.programmed_condition import is_settled
from gatehouse.dataplane.delivery import DataPlaneReport


class _Published(msgspec.Struct):
    """Publications of one Gateway, numbered from 1."""

    controller: str
    newest: int = 0
    """Number of the newest publication; 0 before the first."""
    numbers: dict[str, int] = {}
    """Number by version, of versions that an instance may still confirm."""
    version: str = ""
    """The newest version."""
    trial: bool = False
    """True if the newest version is a trial."""


class Publisher:
    """Publishes the outputs that changed, over the pipeline of each gateway."""

    def __init__(self, pipelines: Mapping[str, AnyPipeline]) -> None:
        """``pipelines``: by ``controllerName`` of the GatewayClass."""
        self._pipelines = pipelines
        self._published: dict[str, _Published] = {}

    @property
    def back_ends(self) -> Mapping[str, OutputQuery]:
        """The query for the output of each back end, by ``controllerName``."""
        return {controller: pipeline.output for controller, pipeline in self._pipelines.items()}

    def capabilities(self, name: str, controller: str) -> Any:
        """Return the capabilities of the connected instances of a gateway; None without any."""
        return self._pipelines[controller].capabilities(name)

    def publish(
        self,
        name: str,
        controller: str,
        output: Output[Any, Any] | None,
        *,
        trial: bool = False,
    ) -> None:
        """Publish the output of a gateway if it changed. None: there is nothing to publish yet.

        ``trial``: no instance that serves may serve it.
        """
        published = self._published.get(name)
        if published is None or published.controller != controller:
            # Numbers continue on another pipeline: a deferred status may wait for an earlier one.
            newest = self.latest_number(name)
            self.withdraw(name)
            published = self._published[name] = _Published(controller, newest)
        if output is None:
            return
        content = output.content.as_trial() if trial else output.content
        if content.version == published.version:
            return
        confirmed = self.confirmed_number(name, self.report(name))
        confirmable = {
            version: number for version, number in published.numbers.items() if number >= confirmed
        }
        published.newest += 1
        published.version, published.trial = content.version, trial
        published.numbers = {**confirmable, published.version: published.newest}
        self._pipelines[controller].delivery.publish(name, content)

    def report(self, name: str) -> DataPlaneReport:
        """Return the current report of a Gateway; an empty one if it is not published."""
        published = self._published.get(name)
        if published is None:
            return DataPlaneReport(gateway=name, desired="")
        return self._pipelines[published.controller].delivery.report(name)

    def trace(
        self, name: str, gateway: ir.GatewayConfiguration, message: str
    ) -> tuple[Suspect, ...]:
        """Return the parts of a configuration that a proxy's error message is about.

        ``name``: that by which it is published.
        """
        published = self._published.get(name)
        if published is None:
            return ()
        return self._pipelines[published.controller].trace(name, gateway, message)

    def latest_number(self, name: str) -> int:
        """Return the number of the newest publication of a Gateway; 0 before the first."""
        published = self._published.get(name)
        return published.newest if published else 0

    def confirmed_number(self, name: str, report: DataPlaneReport) -> int:
        """Return the number of the newest publication that every instance of a report has reached.

        0 without instances, and during trials: nothing is known to be served.
        """
        published = self._published.get(name)
        if published is None or published.trial:
            return 0
        numbers = published.numbers
        return min((numbers.get(version, 0) for version in report.confirmed), default=0)

    def served_number(self, name: str) -> int:
        """Return the number of the newest publication that need not be waited for."""
        published = self._published.get(name)
        if published is None:
            return 0
        report = self.report(name)
        if not published.trial and is_settled(report):
            return published.newest
        return self.confirmed_number(name, report)

    def waiting(self, name: str, number: int) -> tuple[int, int]:
        """Return how many instances have not confirmed a publication, of how many.

        Both numbers are 0 if all have.
        """
        published = self._published.get(name)
        if published is None:
            return 0, 0
        report = self.report(name)
        if self.confirmed_number(name, report) >= number:
            return 0, 0
        instances = report.instances
        if published.trial:
            return len(instances), len(instances)
        numbers = published.numbers
        behind = sum(numbers.get(entry.confirmed, 0) < number for entry in instances)
        return behind, len(instances)

    def withdraw_except(self, names: set[str]) -> None:
        """Withdraw every Gateway that is not among ``names``."""
        for name in self._published.keys() - names:
            self.withdraw(name)

    def withdraw(self, name: str) -> None:
        """Stop publishing configuration for a Gateway. Does nothing if none was published."""
        published = self._published.pop(name, None)
        if published is not None:
            self._pipelines[published.controller].delivery.withdraw(name)
