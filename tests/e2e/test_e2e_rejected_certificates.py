"""Certificates that a proxy rejects are left out; everything else is served at once."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fakes.installation import (
    Installation,
    address,
    answers_https,
    apply,
    condition,
    get,
    hello,
    holds,
    route,
    traffic,
)
from fakes.patience import until
from fakes.rejected_objects import WEAK, listener, secret
from gatehouse.apis import resources
from gatehouse.kube import client as kube

pytestmark = [pytest.mark.process, pytest.mark.long]


async def resolved(client: kube.Client, name: str) -> dict[str, Any]:
    """Return the condition ResolvedRefs of a listener."""
    gateway = await client.get(resources.GATEWAYS, "web", "default")
    return next(
        condition
        for listener_entry in gateway["status"]["listeners"]
        if listener_entry["name"] == name
        for condition in listener_entry["conditions"]
        if condition["type"] == "ResolvedRefs"
    )


@pytest.mark.parametrize("class_name", ["gatehouse-nginx", "gatehouse-envoy"])
async def test_rejected_certificate_leaves_out_only_its_listener(
    installation: Installation, client: kube.Client, backends: None, class_name: str
) -> None:
    manifests = hello(class_name)
    await apply(client, manifests)
    await holds(client, "Gateway", "web", "Programmed")
    where = await address(client)

    async def answers(path: str) -> bool:
        return (await get(where, path))[0] == 200

    await until(lambda: answers("/"))
    async with traffic(where) as statuses:
        await apply(client, [secret("good", ec.SECP256R1()), secret("weak", WEAK)])
        listeners = manifests[0]["spec"]["listeners"]
        patch = {"spec": {"listeners": [*listeners, listener("good"), listener("weak")]}}
        await client.patch(resources.GATEWAYS, "web", patch, "default")
        await until(lambda: answers_https(where, "good"))
        await apply(client, [route("after", "/after")])
        await until(lambda: answers("/after"))

        async def rejected() -> bool:
            return "rejected by" in (await resolved(client, "weak"))["message"]

        await until(rejected)
        condition_of_listener = await resolved(client, "weak")
        assert (condition_of_listener["status"], condition_of_listener["reason"]) == (
            "False",
            "InvalidCertificateRef",
        )
        assert "Secret default/weak" in condition_of_listener["message"]
        assert (await resolved(client, "good"))["status"] == "True"

        async def named() -> bool:
            programmed = await condition(client, "Gateway", "web", "Programmed")
            return bool(
                programmed
                and programmed["status"] == "True"
                and "Secret default/weak" in programmed["message"]
            )

        await until(named)
        # A renewed certificate is tried at once.
        await apply(client, [secret("weak", ec.SECP256R1())])
        await until(lambda: answers_https(where, "weak"))
    assert set(statuses) == {"200"}, statuses
