"""The page of differences between Gatehouse's API server and a kube-apiserver.

They are those that a test accepts, in ``tests/fakes/kube_parity/differences.yaml``.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fakes.kube_parity.accepted import accepted_differences  # noqa: E402
from fakes.kube_parity.table import parity_requests  # noqa: E402
from fakes.peers import KUBERNETES  # noqa: E402

INTRODUCTION = """\
A test sends {count} requests to the [embedded API server](api-server.md), and compares the
responses with those of a kube-apiserver {version}: status code, reason, fields of the causes,
headers, content and field owners. It accepts these differences. `make peers` records the responses
of the kube-apiserver again."""


def page(note: str) -> str:
    """Return the page."""
    count = sum(request.recorded for request in parity_requests())
    introduction = INTRODUCTION.format(count=count, version=KUBERNETES.removeprefix("v"))
    lines = ["# Differences from kube-apiserver", "", note, "", introduction, ""]
    lines += ["| subject | kube-apiserver | Gatehouse | reason |", "| --- | --- | --- | --- |"]
    for item in accepted_differences():
        cells = (item.title, item.kubernetes, item.gatehouse, item.reason)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
