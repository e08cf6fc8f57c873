"""Text and JSON of `gatehouse check`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from gatehouse.cli.check_findings import CheckFinding
from gatehouse.compiler.evaluation.traffic import TrafficChange
from kube_base.runtime.printable import printable

_SIGNS = {"added": "+", "removed": "-", "target": "~", "settings": "~"}


class CheckReport(msgspec.Struct, frozen=True, rename="camel"):
    """Result of a check, as in JSON."""

    objects: int
    """Number of checked objects."""
    findings: tuple[CheckFinding, ...]
    traffic: tuple[TrafficChange, ...] | None
    """Changes in traffic; None if there is nothing to compare with."""
    proxies: tuple[str, ...] = ()
    """Names and versions of the proxies that read the configuration."""
    notes: tuple[str, ...] = ()


def report_json(report: CheckReport) -> str:
    """Return the report as JSON."""
    return json.dumps(msgspec.to_builtins(report), indent=2)


def report_lines(report: CheckReport) -> Iterator[str]:
    """Yield the lines of the text: findings, changes in traffic, notes and a summary."""
    lines = [finding.text for finding in report.findings]
    if report.traffic is not None:
        lines += _traffic_lines(report.traffic)
    lines += [f"note: {note}" for note in report.notes]
    for line in lines:
        yield printable(line)
    count = len(report.findings)
    findings = f"{count} finding{'s' if count > 1 else ''}" if count else "no findings"
    tested = f", read by {' and '.join(report.proxies)}" if report.proxies else ""
    objects = f"{report.objects} object{'' if report.objects == 1 else 's'}"
    yield printable(f"{objects} checked{tested}: {findings}")


def _traffic_lines(changes: Sequence[TrafficChange]) -> Iterator[str]:
    if not changes:
        yield "traffic: no change"
    for gateway, group in groupby(changes, key=lambda change: change.entry.gateway):
        yield f"traffic at Gateway {gateway}:"
        yield from (f"  {_SIGNS[change.change]} {_change(change)}" for change in group)


def _change(change: TrafficChange) -> str:
    entry = change.entry
    text = f"{entry.port}/{entry.protocol}"
    if entry.type == "port":
        return f"{text}{': other client certificates' if change.change == 'settings' else ''}"
    text = f"{text} {entry.host or 'any host'}{f' {entry.match}' if entry.match else ''}"
    if entry.type == "host":
        return text
    targets = [target for target in (change.before, change.after) if target]
    moved = " -> ".join(targets)
    target = f"{targets[0]}, other settings" if change.change == "settings" else moved
    return f"{text}: {target}{f' ({change.object})' if change.object else ''}"
