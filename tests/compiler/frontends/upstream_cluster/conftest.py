"""Fixtures of the tests of UpstreamClusters."""

from __future__ import annotations

import pytest

from fakes.upstream_worlds import World


@pytest.fixture
def world() -> World:
    clusters = World()
    clusters.gateway()
    return clusters
