"""An agent behind an unreliable network, and files that take long in it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fakes.agent_control_plane import ControlPlane
from fakes.faulty_proxy import FaultyProxy
from gatehouse.agent.nginx import main
from gatehouse.dataplane.file_set import File
from gatehouse.transports.agents.fleet import AgentFleet


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return the number of requests for each file by path."""
    counts: Counter[str] = Counter()
    find = AgentFleet.find

    def counting(self: AgentFleet, identity: Any, digest: str) -> File | None:
        result = find(self, identity, digest)
        if result is not None:
            counts[result.path] += 1
        return result

    monkeypatch.setattr(AgentFleet, "find", counting)
    return counts


def options(plane: ControlPlane, network: FaultyProxy, directory: Path) -> main.AgentOptions:
    port = {"NGINX_AGENT_COMMAND_SERVER_PORT": str(network.port)}
    return main.options_from_environment(plane.environment(directory) | port)


def noise(sizes: Iterable[int]) -> list[File]:
    return [
        File.make(f"gatehouse/noise/{number}", random.Random(number).randbytes(size))
        for number, size in enumerate(sizes)
    ]
