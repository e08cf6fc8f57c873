"""Limits of requests in flight in the runtime of an Envoy that an agent runs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes import envoy_agent, patience
from fakes.envoy_running import EnvoyControlPlane
from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.agent.envoy.paths import envoy_paths
from gatehouse.controller.pipelines import envoy_pipeline
from gatehouse.dataplane import features
from gatehouse.dataplane.delivery import InstanceCapabilities
from gatehouse.dataplane.xds.resources import ResourceSet
from gatehouse.dataplane.xds.runtime_limits import (
    SharedLimit,
    limits_resource,
    own_limit,
    own_limits,
    shared_totals,
)

pytestmark = pytest.mark.process

KEY = "circuit_breakers.kube:a/flow/s.default.max_requests"


@contextlib.asynccontextmanager
async def running(plane: EnvoyControlPlane, root: Path) -> AsyncIterator[AdminClient]:
    options = envoy_agent.options(plane, root)
    async with envoy_agent.running(options):
        yield AdminClient(envoy_paths(options.root, options.run_dir).admin)


async def until_limit(admin: AdminClient, limit: str | None) -> None:
    """Wait until Envoy's runtime has this limit."""
    current: object = None
    async with patience.limit():
        while current != limit or current is None:
            with contextlib.suppress(OSError):
                _, text = await admin.get("/runtime")
                entry = json.loads(text or "{}").get("entries", {}).get(KEY)
                current = entry["final_value"] if entry else None
                if limit is None and text and entry is None:
                    return
            await patience.pause()


def limits(limit: int) -> ResourceSet:
    return ResourceSet([limits_resource({"kube:a/flow/s": limit})])


async def test_envoy_gets_limits_from_its_runtime(plane: EnvoyControlPlane, tmp_path: Path) -> None:
    async with running(plane, tmp_path) as admin:
        (instance,) = (await plane.served(limits(7))).instances
        await until_limit(admin, "7")
        assert features.RUNTIME_LIMITS in instance.features
        await plane.served(limits(3))
        await until_limit(admin, "3")
        # A Gateway without kube-apiservers has no limits.
        await plane.served(ResourceSet())
        await until_limit(admin, None)


async def test_restarted_envoy_has_its_limits_without_a_control_plane(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    async with running(plane, tmp_path) as admin:
        await plane.served(limits(7))
        await until_limit(admin, "7")
    await plane.server.stop(0)
    async with running(plane, tmp_path) as admin:
        await until_limit(admin, "7")


@pytest.mark.parametrize("others", [[], [frozenset()], [frozenset({features.RELAY})]])
async def test_limits_are_in_clusters_while_any_envoy_lacks_the_layer(
    plane: EnvoyControlPlane,
    others: list[frozenset[str]],
) -> None:
    able = frozenset({features.RELAY, features.RUNTIME_LIMITS})
    instances = [InstanceCapabilities("envoy/1", (), known) for known in [able, *others]]
    capabilities = envoy_pipeline(plane.server.envoys).common_capabilities(frozenset(instances))
    assert capabilities is not None
    assert capabilities.runtime_limits == (not others)


FLOW = "kube:a/flow/s"


def test_data_plane_gets_only_its_own_share() -> None:
    resource = limits_resource({FLOW: 5, "kube:b/flow/t": 3}, {FLOW: SharedLimit(10, 1, {"p": 8})})
    mine, new = own_limits(resource, "p"), own_limits(resource, "q")
    assert (own_limit(mine, FLOW), own_limit(new, FLOW)) == (8, 1)
    assert own_limit(mine, "kube:b/flow/t") == 3
    assert mine.version == resource.version
    assert b"share" not in mine.body
    assert shared_totals(mine) == {FLOW: 10}


def test_share_is_kept_while_the_control_plane_does_not_know_the_use() -> None:
    """A restarted control plane has no reports yet."""
    before = own_limits(limits_resource({FLOW: 5}, {FLOW: SharedLimit(10, 1, {"p": 8})}), "p")
    restarted = limits_resource({FLOW: 5}, {FLOW: SharedLimit(10, 1)})
    assert own_limit(own_limits(restarted, "p", before), FLOW) == 8
    lower = limits_resource({FLOW: 5}, {FLOW: SharedLimit(6, 1)})
    assert own_limit(own_limits(lower, "p", before), FLOW) == 6


def test_limits_that_are_not_shared_reach_the_data_plane_unchanged() -> None:
    resource = limits_resource({FLOW: 5})
    assert own_limits(resource, "p") is resource
    assert shared_totals(resource) == {}
