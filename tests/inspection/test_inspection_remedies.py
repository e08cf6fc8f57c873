"""Instructions for problems: each bad reason has one, and its document exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gatehouse.apis.condition_parts import is_good
from gatehouse.compiler.frontends.external_load_balancer.findings import (
    ConditionReason,
    LoadBalancerReason,
)
from gatehouse.compiler.frontends.gateway_api.findings import Reason
from gatehouse.compiler.frontends.upstream_cluster.findings import ClusterReason
from gatehouse.inspection import remedies

ROOT = Path(__file__).parents[2]
BAD = sorted(
    {
        (kind, reason)
        for entry in (*Reason, *ClusterReason, *ConditionReason)
        for kind, holds, reason in [entry.value]
        if not is_good(kind, str(holds)) and reason != "PolicyAffected"
    }
    | {("Accepted", entry.value) for entry in LoadBalancerReason}
)


@pytest.mark.parametrize(("kind", "reason"), BAD)
def test_bad_condition_has_an_instruction(kind: str, reason: str) -> None:
    assert remedies.remedy_for(kind, reason) != remedies.remedy_for("Unknown", "Unknown")
    assert remedies.remedy_for(kind, reason).sentence.endswith(".")


@pytest.mark.parametrize(
    "remedy",
    [
        remedies.NO_ENDPOINTS,
        remedies.NO_CONTROLLER,
        remedies.NO_PARENT,
        remedies.POD_NOT_READY,
        *(remedies.remedy_for(*entry) for entry in BAD),
        remedies.remedy_for("Unknown", "Unknown"),
    ],
)
def test_document_of_an_instruction_exists(remedy: remedies.Remedy) -> None:
    path, _, anchor = remedy.document.partition("#")
    text = (ROOT / path).read_text()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lower()).strip().replace(" ", "-")
        for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    assert not anchor or anchor in headings
