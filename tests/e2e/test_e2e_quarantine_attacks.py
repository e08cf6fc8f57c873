"""A tenant's rejected objects fail no request of another tenant, however they come and go.

Both proxies serve a Gateway that two tenants share. All their routes have the same hostname. The
good routes are asked all the time.
"""

from __future__ import annotations

import pytest

from fakes.attacked_gateway import Shared, attacked, installation, manifests, shared, unharmed
from fakes.installation import apply, condition
from fakes.patience import until
from fakes.strict_nginx import REFUSED, REFUSED_UNNAMED
from fakes.tenant_attacks import ATTACKS, CASES, GOOD, PROXIES, TENANT, Attack, bad, good
from gatehouse.apis import resources

__all__ = ["installation", "shared"]

pytestmark = pytest.mark.process


@pytest.mark.parametrize(("name", "proxy"), CASES)
async def test_rejected_objects_of_a_tenant_fail_no_request_of_another(
    shared: Shared, name: str
) -> None:
    async with unharmed(shared), attacked(shared, ATTACKS[name]):
        pass


@pytest.mark.parametrize("proxy", PROXIES)
async def test_deletion_of_a_gateway_keeps_what_is_left_out_of_another(shared: Shared) -> None:
    client, other = shared.client, "other"
    gateway = next(item for item in manifests() if item["metadata"]["name"] == shared.proxy)
    gateway = {**gateway, "metadata": {"name": other, "namespace": TENANT}}
    rejected = bad(REFUSED)
    rejected["spec"]["parentRefs"].append({"name": other})
    attack = Attack((gateway, rejected), paths=("/bad",))
    async with unharmed(shared), attacked(shared, attack) as since:

        async def is_left_out() -> bool:
            result = await condition(client, "Gateway", other, "Programmed", TENANT)
            return result is not None and "1 object left out" in result["message"]

        await until(is_left_out)
        await client.delete(resources.GATEWAYS, other, TENANT)
        await shared.add("later")
        assert await shared.left_out(attack, attack.culprits) == since
        await client.delete(resources.HTTP_ROUTES, "later", GOOD)


@pytest.mark.long
@pytest.mark.parametrize("proxy", PROXIES)
async def test_rejected_object_that_comes_and_goes_delays_no_good_object(shared: Shared) -> None:
    """It is deleted at any moment of a search, and created again with another rejected value."""
    texts = (REFUSED, REFUSED_UNNAMED) if shared.proxy == "nginx" else (REFUSED, f"x{REFUSED}")
    async with unharmed(shared):
        for number in range(12):
            attack = Attack((bad(texts[number % 2]),), paths=("/bad",))
            await apply(shared.client, [*attack.bad, good(f"round-{number}")])
            await shared.served(f"/round-{number}")
            if number % 3 == 0:
                await shared.left_out(attack, attack.culprits)
            await shared.client.delete(resources.HTTP_ROUTES, "bad", TENANT)
            await shared.client.delete(resources.HTTP_ROUTES, f"round-{number}", GOOD)
        await shared.lifted()
        await shared.add("last")
        await shared.client.delete(resources.HTTP_ROUTES, "last", GOOD)
