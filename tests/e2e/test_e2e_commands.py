"""Commands other than `gatehouse up`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from fakes import promtool
from fakes.installation import ROOT, Installation, address, apply, hello
from fakes.installation_fixtures import shared_installation as installation
from fakes.loopback import loopback_network
from fakes.patience import KUBECTL_TIMEOUT, SECONDS, until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = pytest.mark.process


async def test_second_up_on_the_same_state_directory_fails_with_one_line(
    installation: Installation, client: kube.Client
) -> None:
    command = (sys.executable, "-m", "gatehouse", "up", "--state-dir", str(installation.state))
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        f"gatehouse: {installation.state} is in use by another `gatehouse up`"
    ]


class Kubectl:
    """kubectl on PATH, as the administrator."""

    def __init__(self, installation: Installation, directory: Path) -> None:
        self.directory = directory
        kubeconfig = str(installation.kubeconfig)
        self._environ = {**os.environ, "HOME": str(directory), "KUBECONFIG": kubeconfig}
        self.old = "1.20" in self._run("version", "--client").stdout
        """It validates manifests by rules that the API server does not publish."""

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ("kubectl", *words),
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )

    async def __call__(self, *words: str, ok: bool = True) -> str:
        """Return the output. The command must succeed, or fail if it is not ``ok``."""
        done = await asyncio.to_thread(self._run, *words)
        assert (done.returncode == 0) is ok, done.stdout + done.stderr
        return done.stdout + done.stderr

    async def apply(self, *manifests: dict[str, Any], ok: bool = True) -> str:
        path = self.directory / "manifests.yaml"
        path.write_text(yaml.safe_dump_all(manifests))
        loose = ("--validate=false",) if self.old else ()
        return await self("apply", *loose, "-f", str(path), ok=ok)


@pytest.fixture
def kubectl(installation: Installation, tmp_path: Path) -> Kubectl:
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl on PATH")
    return Kubectl(installation, tmp_path)


async def test_kubectl_applies_reads_and_deletes_objects(
    kubectl: Kubectl, client: kube.Client
) -> None:
    for name in ("gateway/web", "httproute/app"):
        await kubectl("delete", "--ignore-not-found", name)
    assert "gateway.gateway.networking.k8s.io/web created" in await kubectl.apply(*hello())
    before = await client.get(resources.GATEWAYS, "web", "default")
    assert "service/app unchanged" in await kubectl.apply(*hello())
    # kubectl says "configured" where a server adds defaults inside lists; nothing is written.
    after = await client.get(resources.GATEWAYS, "web", "default")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    await kubectl("wait", "--for=condition=Programmed", KUBECTL_TIMEOUT, "gateway/web")
    table = await kubectl("get", "gateways")
    assert table.split()[:5] == ["NAME", "CLASS", "ADDRESS", "PROGRAMMED", "AGE"]
    assert "gatehouse-nginx" in table
    assert "Programmed" in await kubectl("describe", "gateway", "web")
    listed = json.loads(await kubectl("get", "httproutes", "-A", "-o", "json"))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["app"]
    deleted = await kubectl("delete", "httproute", "app")
    assert 'httproute.gateway.networking.k8s.io "app" deleted' in deleted
    await kubectl("get", "httproute", "app", ok=False)


async def test_kubectl_reads_logs_of_a_data_plane(kubectl: Kubectl, client: kube.Client) -> None:
    await kubectl.apply(*hello())
    await kubectl("wait", "--for=condition=Programmed", KUBECTL_TIMEOUT, "gateway/web")
    (deployment,) = (await kubectl("get", "deployments", "-o", "name")).split()
    assert "successfully rolled out" in await kubectl("rollout", "status", deployment)
    logs = await kubectl("logs", deployment)
    assert "applied" in logs
    assert len((await kubectl("logs", deployment, "--tail=1")).splitlines()) == 1
    assert await kubectl("logs", deployment, "--since-time=2999-01-01T00:00:00Z") == ""
    stamped = (await kubectl("logs", deployment, "--timestamps")).splitlines()
    moments = [datetime.fromisoformat(line.partition(" ")[0]) for line in stamped]
    assert moments == sorted(moments)
    owner = await client.get(resources.DEPLOYMENTS, deployment.partition("/")[2], "default")
    (pod,) = [
        owned_pod["metadata"]["name"]
        for owned_pod in (await client.list(resources.PODS, "default")).items
        if owned_pod["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    ]
    path = f"/api/v1/namespaces/default/pods/{pod}/log"
    since = stamped[-1].partition(" ")[0]
    # By kubectl logs, times are of whole seconds only.
    latest = await kubectl("get", "--raw", f"{path}?sinceTime={since}")
    assert logs.splitlines()[0] not in latest


async def test_kubectl_names_the_field_of_an_invalid_manifest(kubectl: Kubectl) -> None:
    unknown, invalid = hello()[-1], hello()[-1]
    unknown["spec"]["rulez"] = []
    if not kubectl.old:
        assert 'unknown field "spec.rulez"' in await kubectl.apply(unknown, ok=False)
    invalid["spec"]["rules"][0]["backendRefs"][0]["port"] = 70000
    assert "spec.rules[0].backendRefs[0].port" in await kubectl.apply(invalid, ok=False)


async def test_kubectl_creates_objects_without_manifests(kubectl: Kubectl) -> None:
    # From 1.32 on kubectl sends these as protobuf.
    assert "namespace/made created" in await kubectl("create", "namespace", "made")
    await kubectl("create", "configmap", "c", "-n", "made", "--from-literal=a=b")
    await kubectl("create", "secret", "generic", "s", "-n", "made", "--from-literal=a=b")
    assert "a: Yg==\n" in await kubectl("get", "secret", "s", "-n", "made", "-o", "yaml")
    await kubectl("create", "serviceaccount", "a", "-n", "made")
    if not kubectl.old:
        assert len((await kubectl("create", "token", "a", "-n", "made")).split(".")) == 3
        assert "gatehouse-admin" in await kubectl("auth", "whoami")
    assert "deleted" in await kubectl("delete", "namespace", "made")


async def test_status_and_config_show_the_served_configuration(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    await address(client)

    async def gatehouse(*words: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            (sys.executable, "-m", "gatehouse", *words),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        return done.stdout

    status = await gatehouse("status", "--kubeconfig", str(installation.kubeconfig))
    assert "default/web" in status
    assert "default/app" in status
    served = await gatehouse("config", "default/web", "--state-dir", str(installation.state))
    assert "proxy_pass http://c-default-app-80" in served


def test_demo_ends_with_correct_responses(tmp_path: Path) -> None:
    pool = f"{loopback_network()}.0/24"
    done = subprocess.run(
        (sys.executable, "-m", "gatehouse", "demo", "--once", "--address-pool", pool),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every answer was right." in done.stdout
    # Everything has ended: nothing of it can be used.
    printed = done.stdout + done.stderr
    assert "kubeconfig" not in printed
    assert "curl" not in printed
    paths = re.findall(r"(?<![\w:/.])/[\w./-]+", printed)
    assert [path for path in paths if not Path(path).exists()] == []


async def test_up_serves_the_metrics_of_the_controller(
    installation: Installation, client: kube.Client
) -> None:
    addresses = json.loads((installation.state / "addresses.json").read_text())
    url = f"http://{addresses['health']}/metrics"

    async def page() -> str:
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                assert response.status == 200
                text = await response.text()
                passes = r"^gatehouse_controller_compile_passes_total [1-9]"
                return text if re.search(passes, text, re.MULTILINE) else ""
        return ""

    text = await until(page)
    assert f"metrics of the controller: {url}" in installation.output.read_text()
    assert await promtool.check(text) == ""
