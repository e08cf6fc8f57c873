"""Restarts beside a tenant's rejected objects fail no request of another tenant.

The controller, the agent and the data plane are killed or replaced. Both proxies serve a Gateway
that two tenants share.
"""

from __future__ import annotations

import signal

import pytest

from fakes.attacked_gateway import GOOD_ROUTES, Shared, attacked, installation, shared, unharmed
from fakes.tenant_attacks import ATTACKS, CASES, GOOD
from gatehouse.apis import resources

__all__ = ["installation", "shared"]

pytestmark = pytest.mark.process

GAP = {"ClientConnectorError", "ClientOSError", "ServerDisconnectedError"}
"""Errors of requests without an answer: two Pods cannot have one address on one machine."""


def kill_controller(shared: Shared) -> None:
    """Kill the controller."""
    shared.installation.part("controller").signal(signal.SIGKILL)


def kill_agent(shared: Shared) -> None:
    """Kill the agent. Its proxy continues."""
    shared.agent().signal(signal.SIGKILL)


FAULTS = {"controller": kill_controller, "agent": kill_agent}


@pytest.mark.long
@pytest.mark.parametrize(("name", "proxy"), CASES)
async def test_killed_controller_and_agent_fail_no_request_beside_rejected_objects(
    shared: Shared, name: str
) -> None:
    attack = ATTACKS[name]
    async with unharmed(shared), attacked(shared, attack) as since:
        for fault, cause in FAULTS.items():
            cause(shared)
            await shared.add(f"after-{fault}")
            culprits = (*attack.known, *attack.culprits)
            assert await shared.left_out(attack, culprits) == since
            await shared.client.delete(resources.HTTP_ROUTES, f"after-{fault}", GOOD)


REPLACED = [("unnamed", "nginx"), ("one of many", "envoy")]
"""Cases of replaced Pods that need little time."""


@pytest.mark.parametrize(("name", "proxy"), REPLACED)
async def test_replaced_data_plane_answers_no_request_wrong_beside_rejected_objects(
    shared: Shared, name: str
) -> None:
    attack = ATTACKS[name]
    async with unharmed(shared, GAP), attacked(shared, attack) as since:
        await shared.replace_pods()
        async with unharmed(shared):
            await shared.add("after-replacement")
            assert await shared.left_out(attack, attack.culprits) == since
        await shared.client.delete(resources.HTTP_ROUTES, "after-replacement", GOOD)


@pytest.mark.parametrize(
    ("name", "proxy"),
    REPLACED + [case for case in CASES if "beside many routes" in str(case.values[0])],
)
async def test_new_data_plane_serves_all_good_routes_at_once_beside_a_rejected_object(
    shared: Shared, name: str
) -> None:
    """The controller is killed, too, so that no version is known to be good."""
    attack, client = ATTACKS[name], shared.client
    paths = [f"/good-{number}" for number in range(GOOD_ROUTES)]
    metadata = [item["metadata"] for item in (*attack.before, *attack.bad)]
    paths += [f"/{item['name']}" for item in metadata if item["namespace"] == GOOD]
    async with attacked(shared, attack), unharmed(shared, GAP):
        kill_controller(shared)
        await shared.replace_pods()
        async with unharmed(shared):
            assert {await shared.status(path) for path in paths} == {200}
            await shared.add("after-replacement")
            await client.delete(resources.HTTP_ROUTES, "after-replacement", GOOD)
            await shared.left_out(attack, attack.culprits)
