"""Queries that join front ends and back ends: the output of each Gateway, and what it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gatehouse.compiler.backends.fragments import Output
from gatehouse.compiler.backends.source import GatewaySource
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.controller.held_back import HeldBack, held_back_key, without_held_back
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

BACK_ENDS: Key = ("BackEnds",)
"""Input: the query for the output of each back end, by ``controllerName`` of the GatewayClass."""

OutputQuery = Callable[[Ask, GatewaySource], Output[Any, Any]]

FragmentKey = tuple[int, Any]
"""Key of a fragment in :attr:`Output.findings`."""

_REPORTED = frozenset(resource.kind for resource in combined.KINDS.with_status)


def published_name(gateway: Key) -> str:
    """Return the name by which a Gateway is published."""
    return f"{gateway[1]}/{gateway[2]}"


def capabilities_key(controller: str, gateway: Key) -> Key:
    """Return the key of the capabilities that the instances of a Gateway have in common."""
    return ("Capabilities", controller, *gateway[1:])


def gateway_output(ask: Ask, gateway: Key) -> Output[Any, Any] | None:
    """Return everything that the data planes of a Gateway need.

    None if the Gateway cannot be served yet, and before an instance has connected, since instances
    report their capabilities.
    """
    controller = ask(gateway_api.class_controller, gateway)
    capabilities = capabilities_key(controller, gateway)
    back_end: OutputQuery | None = (ask.read(BACK_ENDS) or {}).get(controller)
    if back_end is None or ask.read(capabilities) is None:
        return None
    if not ask(_is_compiled, gateway):
        return None
    source = GatewaySource(published_name(gateway), published_gateway, gateway, capabilities)
    return ask(back_end, source)


def published_gateway(ask: Ask, gateway: Key) -> GatewayConfiguration | None:
    """Return the configuration of a Gateway without what is held back during a search."""
    compiled = ask(combined.compile_combined_gateway, gateway)
    held: HeldBack | None = ask.read(held_back_key(gateway))
    return compiled if compiled is None or held is None else without_held_back(held, compiled)


def _is_compiled(ask: Ask, gateway: Key) -> bool:
    return ask(combined.compile_combined_gateway, gateway) is not None


def unsupported_findings(ask: Ask, gateway: Key, subject: Key) -> tuple[Unsupported, ...]:
    """Return what the back end of a Gateway does not support of an object. Plain function."""
    keys = ask.entry(_fragments_by_subject, gateway, key=subject) or ()
    findings = (finding for key in keys for finding in ask.entry(_findings, gateway, key=key) or ())
    return tuple(finding for finding in findings if subject_of(gateway, finding) == subject)


def subject_of(gateway: Key, finding: Unsupported) -> Key:
    """Return the origin of a finding if it has a status; else the Gateway."""
    has_status = finding.origin.kind in _REPORTED
    return gateway_api.key_of(finding.origin) if has_status else gateway


def rejections_of(report: DataPlaneReport) -> tuple[Unsupported, ...]:
    """Return what instances of a Gateway rejected while they serve the rest."""
    return tuple(Unsupported(origin, reason, rejected=True) for origin, reason in report.rejected)


def by_subject(gateway: Key, findings: Iterable[Unsupported]) -> dict[Key, tuple[Unsupported, ...]]:
    """Return rejections by a proxy as inputs, by the object whose status reports them."""
    result: dict[Key, tuple[Unsupported, ...]] = {}
    for finding in findings:
        key = gateway_api.rejections_key(gateway, subject_of(gateway, finding))
        result[key] = (*result.get(key, ()), finding)
    return result


def _findings(ask: Ask, gateway: Key) -> Table[FragmentKey, tuple[Unsupported, ...]]:
    generated = ask(gateway_output, gateway)
    return generated.findings if generated is not None else Table()


def _fragments_by_subject(ask: Ask, gateway: Key) -> Table[Key, tuple[FragmentKey, ...]]:
    return ask.group_by(
        ask(_findings, gateway),
        lambda _, findings: (subject_of(gateway, finding) for finding in findings),
    )
