"""Metric of the versions of an agent and of its proxy."""

from __future__ import annotations

import gatehouse
from gatehouse.runtime.prometheus import Sample


def build_sample(proxy: str, version: str) -> Sample:
    """Return the metric. `version`: version of the program of the proxy."""
    labels = {"version": gatehouse.__version__, "proxy": proxy, "proxy_version": version}
    help_ = "Versions of the agent and of its proxy."
    return Sample("gatehouse_agent_build_info", help_, 1, labels=labels)
