"""Reasons of servers that are not ready, as the reviewer returns them to Envoy's script."""

from __future__ import annotations

import json

import pytest

from fakes.reviewer_process import CLUSTER, ReviewerProcess
from gatehouse.sidecars.reviewer import config

pytestmark = pytest.mark.process


async def test_reasons_of_unready_servers_are_those_of_the_agent(
    reviewer: ReviewerProcess,
) -> None:
    assert (await reviewer.ask("/unready")).text == ""
    file = reviewer.home / config.UNREADY
    servers = {f"10.0.0.{number}:6443": 'no "route"' for number in range(10, 22)}
    file.write_text(json.dumps({CLUSTER: servers, "other": {"10.9.9.9:1": "secret"}}))
    answer = await reviewer.ask("/unready")
    text = json.loads(f'"{answer.text}"')
    assert answer.status == 200
    assert text.startswith('10.0.0.10:6443: no "route"; 10.0.0.11:6443: ')
    assert text.endswith("; and 2 more")
    assert "secret" not in text
    for invalid in ("", "[]", '{"prod.example": 1}', '{"prod.example": {"a": 1}}'):
        file.write_text(invalid)
        answer = await reviewer.ask("/unready")
        assert (answer.status, answer.text) == (200, "")
