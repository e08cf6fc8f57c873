"""A new controller and a new Pod serve all good hostnames beside certificates that proxies reject.

NGINX names none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fakes.durations import pace
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
)
from fakes.installation_fixtures import running_installation
from fakes.patience import until
from fakes.rejected_objects import listener, refused_authority, refused_pair, secret
from fakes.strict_nginx import environment_with_strict_nginx
from fakes.upstream_worlds import authority
from gatehouse.apis import resources
from gatehouse.kube import client as kube

pytestmark = [pytest.mark.process, pytest.mark.long]

CLIENTS_PORT = 8444
"""A port that verifies the certificates of clients."""


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """Return an installation whose NGINX rejects certificates that the compiler accepts."""
    with tempfile.TemporaryDirectory(prefix="gh-nginx-") as directory:
        environment = environment_with_strict_nginx(Path(directory))
        with running_installation(environment=environment) as started:
            yield started


def gateway(class_name: str) -> dict[str, Any]:
    """Return a Gateway with a rejected certificate, and a port with rejected CA certificates."""
    result: dict[str, Any] = hello(class_name)[0]
    result["spec"]["listeners"] += [
        listener("good"),
        listener("bad"),
        listener("clients", CLIENTS_PORT),
    ]
    authorities = [{"group": "", "kind": "ConfigMap", "name": "ca"}]
    validation = {"validation": {"caCertificateRefs": authorities}}
    per_port = [{"port": CLIENTS_PORT, "tls": validation}]
    result["spec"]["tls"] = {"frontend": {"default": {}, "perPort": per_port}}
    return result


async def says_why(client: kube.Client, name: str) -> bool:
    """Return whether the status of a listener says that the proxy rejected something."""
    current = await client.get(resources.GATEWAYS, "web", "default")
    listeners = (current.get("status") or {}).get("listeners") or ()
    return any(
        entry["name"] == name and "rejected by" in str(entry["conditions"]) for entry in listeners
    )


def authority_object(name: str) -> dict[str, Any]:
    """Return a ConfigMap with valid CA certificates."""
    metadata = {"name": name, "namespace": "default"}
    data = {"ca.crt": authority().pem.decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def pods(client: kube.Client) -> dict[str, str]:
    """Return the names of the Gateway's Pods by UID."""
    metadata = [pod["metadata"] for pod in (await client.list(resources.PODS, "default")).items]
    return {one["uid"]: one["name"] for one in metadata if one["name"].startswith("web-")}


@contextlib.asynccontextmanager
async def verified(where: str) -> AsyncIterator[None]:
    """Send requests without a client certificate all the time. None may reach the backend."""
    answers: list[bool] = []

    async def send() -> None:
        while True:
            answers.append(await answers_https(where, "clients", CLIENTS_PORT))
            await pace(0.005)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert answers
    assert not any(answers), "a request without a certificate is answered"


@pytest.mark.parametrize("class_name", ["gatehouse-nginx", "gatehouse-envoy"])
async def test_new_controller_and_pod_leave_out_only_rejected_certificates(
    installation: Installation, client: kube.Client, backends: None, class_name: str
) -> None:
    certificates = [secret(name, ec.SECP256R1()) for name in ("good", "clients")]
    certificates += [refused_pair("bad"), refused_authority("ca", "default")]
    _, *others = hello(class_name)
    await apply(client, [*certificates, gateway(class_name), *others])
    await holds(client, "Gateway", "web", "Programmed")
    for start in range(2):
        where = await address(client)
        await apply(client, [route(f"start-{start}", f"/start-{start}")])

        async def serves(host: str = where, path: str = f"/start-{start}") -> bool:
            with contextlib.suppress(aiohttp.ClientError):
                return (await get(host, path))[0] == 200
            return False

        async def left_out() -> bool:
            result = await condition(client, "Gateway", "web", "Programmed")
            message = result["message"] if result is not None else ""
            # Envoy may name the certificate of the port, which is not the cause.
            causes = ("Secret default/bad", "ConfigMap default/ca")
            return all(cause in message for cause in causes) and "default/clients" not in message

        async with verified(where):
            await until(serves)
            await until(left_out)
            for name in ("bad", "clients"):
                await until(partial(says_why, client, name))
            await until(partial(answers_https, where, "good"))
            assert not await says_why(client, "good")
            assert not await answers_https(where, "bad")
        if start == 0:
            before = await pods(client)
            installation.part("controller").signal(signal.SIGKILL)
            for name in before.values():
                await client.delete(resources.PODS, name, "default")

            async def replaced(before: dict[str, str] = before) -> bool:
                now = await pods(client)
                return bool(now) and now.keys().isdisjoint(before)

            await until(replaced)
    async with verified(where):
        await apply(client, [authority_object("ca")])
        for name in ("clients", "good"):

            async def valid(name: str = name) -> bool:
                return not await says_why(client, name)

            await until(valid)
    assert await says_why(client, "bad")
    await client.delete(resources.GATEWAYS, "web", "default")
