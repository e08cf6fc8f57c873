"""The page of compatibility with programs of other projects.

Results are those of the last `make peers`, which writes ``tests/peers/report.json``. Accepted
differences are those in :mod:`fakes.peer_differences`.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fakes.peer_differences import PEER_DIFFERENCES, PeerDifference  # noqa: E402
from fakes.peer_report import PeerResult, read_report  # noqa: E402
from fakes.peers import PROGRAMS  # noqa: E402

REPORT = ROOT / "tests" / "peers" / "report.json"

INTRODUCTION = """\
Tests run Gatehouse with programs of other projects. The results are those of the last
`make peers`. Other pages describe single fields: [NGINX Gateway Fabric](compatibility-ngf.md),
[KubeGateway](../tasks/kube-apiservers.md#differences-from-kubegateway)."""

NOT_RUN = {
    "NGINX Gateway Fabric": (
        "Its functional tests (`tests/suite`) are not run as a whole. They install it with Helm, "
        "and send their requests by `kubectl port-forward` to a Pod with the labels of its data "
        "planes. Data planes of `gatehouse up` are processes without containers to forward to. "
        "Scenarios whose manifests and expected statuses do not depend on that are compared, "
        "as the table shows."
    ),
}
"""Tests of other projects that are not run, with the reason, by title of the program."""


NOT_RUN_SCENARIOS = {
    "NGINX Gateway Fabric": (
        ("ClientSettingsPolicy, ProxySettingsPolicy, RateLimitPolicy, SnippetsPolicy, "
         "UpstreamSettingsPolicy: statuses", "compared, 18 scenarios"),
        ("The same and SnippetsFilter: directives", "read from `nginx.conf` in a Pod"),
        ("Advanced routing, session persistence, traffic of all others", "sent to a Pod"),
        ("AuthenticationFilter", "needs Keycloak, and requests to a Pod"),
        ("ProxySettingsPolicy with invalid buffers, UpstreamSettingsPolicy of an invalid Gateway, "
         "invalid snippets", "need what NGINX or a changed Gateway reports"),
        ("NginxGateway, telemetry, tracing", "read logs of NGF's Pod or of a collector"),
        ("WAFPolicy", "needs F5 WAF for NGINX"),
        ("Graceful recovery", "kills containers and Nodes"),
        ("Longevity, performance, reconfiguration, scale, upgrade", "no functional tests"),
    ),
}  # fmt: skip
"""Scenarios of such tests with the reason why they are not run, by title of the program."""


def page(note: str) -> str:
    """Return the page. Raises KeyError if a test of the report used no known program."""
    results: dict[str, list[PeerResult]] = {name: [] for name in PROGRAMS}
    for result in read_report(REPORT):
        results[result.program].append(result)
    tested = {name: entries for name, entries in results.items() if entries}
    lines = ["# Compatibility with other projects", "", note, "", INTRODUCTION, ""]
    lines += [
        "| program | version | tests | result | last run |",
        "| --- | --- | ---: | --- | --- |",
    ]
    for name, entries in tested.items():
        program, last = PROGRAMS[name], max(result.date for result in entries)
        row = (program.title, program.version, str(len(entries)), outcome(entries), last)
        lines.append(f"| {' | '.join(row)} |")
    for program_title, names in groupby(tested, key=lambda name: PROGRAMS[name].title):
        lines += ["", f"## {program_title}"]
        for name in names:
            lines += ["", *_tests(PROGRAMS[name].version, tested[name])]
        if program_title in NOT_RUN:
            lines += ["", *textwrap.wrap(NOT_RUN[program_title], 100)]
            lines += ["", "| scenarios | run or reason |", "| --- | --- |"]
            lines += [f"| {' | '.join(row)} |" for row in NOT_RUN_SCENARIOS[program_title]]
        lines += _differences([item for item in PEER_DIFFERENCES if item.program == program_title])
    return "\n".join([*lines, ""])


def _tests(version: str, results: Sequence[PeerResult]) -> Iterator[str]:
    yield from (f"| test with {version} | result |", "| --- | --- |")
    for result in results:
        yield f"| {_title(result.test)} | {outcome([result])} |"


def _title(test: str) -> str:
    """Return the name of a test as words."""
    words = test.partition("::")[2].removeprefix("test_").replace("_", " ")
    return words[:1].upper() + words[1:]


def outcome(results: Sequence[PeerResult]) -> str:
    """Return the result of some tests as text."""
    passed, failed = (
        sum(getattr(result, name) for result in results) for name in ("passed", "failed")
    )
    if failed:
        return f"{failed} of {passed + failed} cases failed"
    return "passed" if passed == 1 else f"passed, {passed} cases"


def _differences(differences: Sequence[PeerDifference]) -> Iterator[str]:
    if not differences:
        return
    yield from ("", "Accepted differences:", "", "| difference | reason |", "| --- | --- |")
    for difference in differences:
        values = ", ".join(f"`{value}`" for value in difference.values)
        text = f"{difference.behaviour.rstrip('.')}: {values}" if values else difference.behaviour
        yield f"| {_cell(text)} | {_cell(difference.reason)} |"


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")
