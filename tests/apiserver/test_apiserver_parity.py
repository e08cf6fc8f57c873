"""Responses of the API server, compared with those that a kube-apiserver gave.

`make peers` records the responses of kube-apiserver again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.inprocess import Server
from fakes.kube_parity import accepted, comparison
from fakes.kube_parity.comparison import FactDifference
from gatehouse.standalone.state_directory import State
from kube_api_server.http import lists


async def test_responses_are_those_of_a_kube_apiserver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "REACH_SECONDS", 0.0)
    # An empty directory: the first start of a server is compared with that of a kube-apiserver.
    state = State(tmp_path / "state")
    state.directory.mkdir()
    server = Server(state)
    async with server.running(), server.raw() as session:
        await comparison.prepare(session)
        observed = await comparison.collect(session)
    recorded = comparison.read_record()
    assert list(observed) == list(recorded), "record the table again: make peers"
    left, unused = accepted.unexpected(comparison.differences(recorded, observed))
    assert not left, "\n".join(map(str, left))
    assert not unused, unused


def test_difference_that_is_gone_is_reported() -> None:
    gone = FactDifference("reads: HEAD of a collection", "status", "405", "200")
    other = FactDifference("reads: the root", "status", "200", "500")
    left, unused = accepted.unexpected([gone, other])
    assert left == [other]
    assert "Old and rare paths: reads: HEAD of a collection | *" not in unused
    assert "Old and rare paths: reads: component statuses | *" in unused
