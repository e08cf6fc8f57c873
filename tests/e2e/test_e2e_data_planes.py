"""Provisioned data planes with parameters, including DaemonSets, on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes import patience
from fakes.installation import Installation, address, apply, get, hello
from fakes.installation_fixtures import running_installation
from fakes.patience import until
from gatehouse import TIME_FACTOR_VARIABLE
from gatehouse.apis.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    GATEWAYS,
    NGINX_PROXIES,
    SECRETS,
)
from gatehouse.kube import client as kube
from kube_base.types.resource import Resource

pytestmark = pytest.mark.process

NAME = "web-gatehouse-nginx"

HOOK_SECONDS = 3
"""Time for which a data plane that is deleted serves on."""

TIME_FACTOR = f"{2 * patience.FACTOR:g}"


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """Run an installation whose Gateways' own parameters may have volumes and commands."""
    environment = {**os.environ, TIME_FACTOR_VARIABLE: TIME_FACTOR}
    options = ("--allow-gateway-workload-overrides",)
    with running_installation(*options, environment=environment) as result:
        yield result


def parameters(note: Path) -> dict[str, Any]:
    container = {
        "volumeMounts": [
            {"name": "notes", "mountPath": "/etc/notes"},
            {"name": "keys", "mountPath": "/etc/keys"},
        ],
        "lifecycle": {
            "preStop": {"sleep": {"seconds": HOOK_SECONDS}},
            "postStart": {"exec": {"command": ["touch", str(note)]}},
        },
        "readinessProbe": {"periodSeconds": 1},
    }
    volumes = [
        {"name": "notes", "configMap": {"name": "notes"}},
        {"name": "keys", "secret": {"secretName": "keys", "items": [{"key": "k", "path": "a/b"}]}},
    ]
    pod = {"volumes": volumes, "terminationGracePeriodSeconds": 20}
    return {
        "apiVersion": NGINX_PROXIES.api_version,
        "kind": NGINX_PROXIES.kind,
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"kubernetes": {"daemonSet": {"pod": pod, "container": container}}},
    }


def environment(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


async def gone(client: kube.Client, resource: Resource) -> bool:
    try:
        await client.get(resource, NAME, "default")
    except kube.NotFound:
        return True
    return False


async def apply_parameters(client: kube.Client, note: Path) -> str:
    """Apply a Gateway with all parameters. Return its address once it answers."""
    metadata = {"namespace": "default"}
    await client.create(
        CONFIG_MAPS, {"metadata": {**metadata, "name": "notes"}, "data": {"text": "good bye"}}
    )
    await client.create(
        SECRETS, {"metadata": {**metadata, "name": "keys"}, "data": {"k": "c2VjcmV0"}}
    )
    await client.create(NGINX_PROXIES, parameters(note))
    manifests = hello()
    for manifest in manifests:
        if manifest["kind"] == "Gateway":
            reference = {"group": NGINX_PROXIES.group, "kind": "NginxProxy", "name": "p"}
            manifest["spec"]["infrastructure"] = {"parametersRef": reference}
    await apply(client, manifests)
    where = await address(client)
    await until(lambda: _answers(where))
    return where


def check_volumes(volumes: Path) -> None:
    """Compare the volumes of the Pod with the parameters."""
    assert (volumes / "notes" / "text").read_text() == "good bye"
    assert (volumes / "keys" / "a" / "b").read_text() == "secret"
    # Root shares it with the group of the data plane.
    expected = 0o640 if os.geteuid() == 0 else 0o600
    assert (volumes / "keys" / "a" / "b").stat().st_mode & 0o777 == expected
    assert (volumes / "token" / "token").read_text().count(".") == 2


async def replicas_ready(client: kube.Client, resource: Resource, field: str) -> bool:
    """Return whether there is a workload with one ready Pod."""
    try:
        workload = await client.get(resource, NAME, "default")
    except kube.NotFound:
        return False
    return bool((workload.get("status") or {}).get(field) == 1)


async def test_daemon_set_with_all_parameters_runs_and_is_replaced_by_deployment(
    installation: Installation, client: kube.Client, backends: None, tmp_path: Path
) -> None:
    note = tmp_path / "told"
    where = await apply_parameters(client, note)
    await until(lambda: replicas_ready(client, DAEMON_SETS, "numberReady"))
    assert await gone(client, DEPLOYMENTS)
    [pod] = (installation.state / "node" / "pods").iterdir()
    check_volumes(pod / "volumes")
    environ = environment(installation.agent().pid)
    assert environ["POD_IP"] == where
    token = str(pod / "volumes" / "token" / "token")
    assert environ["NGINX_AGENT_COMMAND_AUTH_TOKENPATH"] == token
    assert "owner-type=DaemonSet" in environ["NGINX_AGENT_LABELS"]
    parts = [installation.part(name) for name in ("apiserver", "controller", "node")]
    factors = [environment(part.pid).get(TIME_FACTOR_VARIABLE) for part in parts]
    assert [*factors, environ[TIME_FACTOR_VARIABLE]] == [TIME_FACTOR] * 4
    before = installation.agent()

    container = {"lifecycle": {"postStart": {"exec": {"command": ["touch", str(note)]}}}}
    deployment = {"replicas": 2, "container": container}
    change = {"spec": {"kubernetes": {"daemonSet": None, "deployment": deployment}}}
    begun = time.monotonic()
    await client.patch(NGINX_PROXIES, "p", change, "default")
    async with patience.limit():
        with contextlib.suppress(OSError, aiohttp.ClientError):
            while before.alive():
                await get(where)
    # It serves for the time of its hook.
    assert time.monotonic() - begun >= HOOK_SECONDS
    await until(lambda: gone(client, DAEMON_SETS))
    await until(lambda: replicas_ready(client, DEPLOYMENTS, "readyReplicas"))
    assert not before.alive()
    assert await address(client) == where
    await until(lambda: _answers(where))
    served = await client.get(DEPLOYMENTS, NAME, "default")
    [message] = [
        condition["message"]
        for condition in served["status"]["conditions"]
        if condition["type"] == "Available"
    ]
    assert "only one of 2 replicas" in message
    assert "lifecycle.postStart.exec: not supported on one machine" in message
    assert not note.exists()
    await client.delete(GATEWAYS, "web", "default")
    await until(lambda: gone(client, DEPLOYMENTS))


async def _answers(where: str) -> bool:
    try:
        async with asyncio.timeout(2):
            return (await get(where))[0] == 200
    except (OSError, TimeoutError):
        return False
