"""Several controllers over one API server: one leads, another follows it at once.

Services find the leader by a label of its Pod. Every replica is Ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes import patience
from fakes.inprocess import Server
from fakes.patience import until_equal
from fakes.replica import Replica
from gatehouse.apis.resources import LEASES, PODS
from gatehouse.controller.leader_election import LeadershipLostError, Lease
from gatehouse.controller.leader_label import LABEL, label_changes
from gatehouse.kube import client as kube
from gatehouse.kube.leader_election import Elector, LeaseTiming
from gatehouse.standalone.free_ports import is_free
from gatehouse.standalone.state_directory import State
from kube_base.types.resource import Resource

LEASE = Lease("default", "controller")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
OWN, OTHER, THIRD = ("ns", "own"), ("ns", "other"), ("ns", "third")


@pytest.mark.parametrize(
    ("leading", "labelled", "expected"),
    [
        (True, [], {OWN: True}),
        (True, [OWN], {}),
        (True, [OTHER], {OWN: True, OTHER: False}),
        (True, [OWN, OTHER, THIRD], {OTHER: False, THIRD: False}),
        (False, [], {}),
        (False, [OTHER], {}),
        (False, [OWN], {OWN: False}),
        (False, [OWN, OTHER], {OWN: False}),
    ],
)
def test_label_changes_label_only_the_leader(
    leading: bool, labelled: list[tuple[str, str]], expected: dict[tuple[str, str], bool]
) -> None:
    assert label_changes(OWN, leading, labelled) == expected


def test_label_changes_add_own_label_first() -> None:
    assert list(label_changes(OWN, True, [OTHER])) == [OWN, OTHER]


class Estate:
    """An API server with the Pods of controllers, which run in the test's process."""

    def __init__(self, server: Server, client: kube.Client) -> None:
        self.server = server
        self.client = client
        self.replicas: list[Replica] = []

    async def pod(self, name: str, *, labelled: bool = False) -> None:
        labels = {"app": "gatehouse", **({LABEL: "true"} if labelled else {})}
        metadata = {"name": name, "namespace": "default", "labels": labels}
        spec = {"containers": [{"name": "controller", "image": "gatehouse/controller:1"}]}
        await self.client.create(PODS, {"metadata": metadata, "spec": spec})

    def replica(self, pod: str, **options: Any) -> Replica:
        """Run a controller in a Pod; with no name, outside of Pods."""
        where = ("default", pod) if pod else None
        kubeconfig = self.server.state.controller_kubeconfig
        started = Replica(self.server, kubeconfig, lease=LEASE, pod=where, **options)
        self.replicas.append(started)
        return started

    async def labelled(self) -> set[str]:
        pods = await self.client.list(PODS, "default", label_selector=f"{LABEL}=true")
        return {item["metadata"]["name"] for item in pods.items}

    async def label(self, name: str, value: str | None) -> None:
        await self.client.patch(PODS, name, {"metadata": {"labels": {LABEL: value}}}, "default")

    async def take_lease(self) -> None:
        """Hold the Lease as another live process."""
        lease = await self.client.get(LEASES, LEASE.name, LEASE.namespace)
        taken = {**lease["spec"], "holderIdentity": "somebody else"}
        await self.client.update(LEASES, {**lease, "spec": taken})


@pytest.fixture
async def estate(tmp_path: Path) -> AsyncIterator[Estate]:
    server = Server(State(tmp_path / "s"))
    async with server.running(), server.client() as client:
        world = Estate(server, client)
        try:
            yield world
        finally:
            for replica in world.replicas:
                await replica.stop()
                with contextlib.suppress(BaseException):
                    replica.task.exception()


async def leading(replica: Replica) -> bool:
    return "gatehouse_controller_leader 1.0" in (await replica.get("/metrics"))[1]


def agent_port_is_free(replica: Replica) -> bool:
    return is_free("127.0.0.1", replica.agents)


async def test_both_replicas_are_ready_and_only_the_leader_has_the_label(estate: Estate) -> None:
    for name in ("a", "b"):
        await estate.pod(name)
    first = estate.replica("a")
    await first.until_ready()
    await until_equal(estate.labelled, {"a"})
    second = estate.replica("b")
    await second.until_ready()
    assert (await second.get("/livez"))[0] == 200
    assert (await leading(first), await leading(second)) == (True, False)
    # A standby does not even listen for agents.
    assert not agent_port_is_free(first)
    assert agent_port_is_free(second)
    assert await estate.labelled() == {"a"}
    await first.stop()
    await until_equal(estate.labelled, {"b"})
    await second.until_ready()
    assert await leading(second)
    assert not agent_port_is_free(second)


async def test_leader_removes_label_from_other_pods(estate: Estate) -> None:
    """The Pod of a lost node keeps its label until another controller removes it."""
    await estate.pod("lost", labelled=True)
    await estate.pod("a")
    await estate.replica("a").until_ready()
    await until_equal(estate.labelled, {"a"})


async def test_leader_restores_its_label_after_foreign_change(estate: Estate) -> None:
    for name in ("a", "b"):
        await estate.pod(name)
    await estate.replica("a").until_ready()
    await until_equal(estate.labelled, {"a"})
    await estate.label("a", None)
    await until_equal(estate.labelled, {"a"})
    await estate.label("b", "true")
    await until_equal(estate.labelled, {"a"})


async def test_restarted_container_is_not_ready_until_its_label_is_removed(
    estate: Estate,
) -> None:
    """The container that led was killed: its Pod stays, and so does the label."""
    await estate.pod("a", labelled=True)
    async with another_leads(estate):
        role = await estate.client.get(ROLES, "system:gatehouse:controller")
        cut = [r for r in role["rules"] if not ("pods" in r["resources"] and "patch" in r["verbs"])]
        cut.append({"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]})
        narrow = await estate.client.update(ROLES, {**role, "rules": cut})
        replica = estate.replica("a")
        page = await replica.until(lambda _, text: "forbidden" in text)
        assert page.startswith(f"label {LABEL} is not yet removed from Pod default/a: ")
        await estate.client.update(ROLES, {**narrow, "rules": role["rules"]})
        await replica.until_ready()
        assert await estate.labelled() == set()
        assert not await leading(replica)


@contextlib.asynccontextmanager
async def another_leads(estate: Estate) -> AsyncIterator[None]:
    won = asyncio.Event()
    elector = Elector(estate.client, LEASE.namespace, LEASE.name, "another", lambda _: won.set())
    task = asyncio.create_task(elector.run())
    try:
        await won.wait()
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_controller_reports_missing_permission_to_list_pods(estate: Estate) -> None:
    await estate.pod("a")
    role = await estate.client.get(ROLES, "system:gatehouse:controller")
    cut = [r for r in role["rules"] if "pods" not in r["resources"]]
    assert len(cut) < len(role["rules"])
    await estate.client.update(ROLES, {**role, "rules": cut})
    page = await estate.replica("a").until(lambda _, text: "forbidden" in text)
    assert page.startswith("waiting for Pod (forbidden: ")


async def test_former_leader_stops_serving_agents_and_loses_its_label(
    estate: Estate,
) -> None:
    for name in ("a", "b"):
        await estate.pod(name)
    first = estate.replica("a")
    await first.until_ready()
    await until_equal(estate.labelled, {"a"})
    await estate.take_lease()
    await asyncio.wait([first.task], timeout=patience.SECONDS)
    assert first.task.done()
    error = first.task.exception()
    assert isinstance(error, BaseExceptionGroup)
    assert error.split(LeadershipLostError)[0] is not None
    with pytest.raises(aiohttp.ClientError):
        await first.get("/livez")
    assert agent_port_is_free(first)
    second = estate.replica("b")
    await second.until_ready()
    # The other holder does not renew: its Lease expires, and the label goes with leadership.
    await until_equal(estate.labelled, {"b"})


async def test_labels_are_unchanged_outside_of_a_pod(estate: Estate) -> None:
    await estate.pod("a", labelled=True)
    first, second = estate.replica(""), estate.replica("")
    await first.until_ready()
    await second.until_ready()

    async def leaders() -> int:
        return [await leading(replica) for replica in (first, second)].count(True)

    await until_equal(leaders, 1)
    assert await estate.labelled() == {"a"}


async def test_suspended_leader_is_not_renewed_after_its_deadline(estate: Estate) -> None:
    """Before the elector runs again, nothing may be written as a leader."""
    clock = [0.0]
    elector = Elector(
        estate.client,
        *(LEASE.namespace, LEASE.name, "suspended", lambda _: None),
        timing=LeaseTiming(),
        clock=lambda: clock[0],
    )
    await elector.step()
    assert elector.renewed
    clock[0] = LeaseTiming().renew_deadline - 0.1
    assert elector.renewed
    clock[0] = LeaseTiming().renew_deadline
    assert elector.leading
    assert not elector.renewed
