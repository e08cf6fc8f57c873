"""`gatehouse config` beside a running Envoy, and what it says where there is none."""

from __future__ import annotations

import asyncio
import base64
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.authority import Authority
from fakes.installation import Installation, apply, hello, holds, route
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def gateway_class() -> str:
    return "gatehouse-envoy"


async def config(installation: Installation, *words: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "gatehouse", "config", *words)
    return await asyncio.to_thread(
        subprocess.run, (*command, "--state-dir", str(installation.state)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def certificate(directory: Path) -> dict[str, Any]:
    files = dict(zip(("tls.crt", "tls.key"), Authority(directory).issue("h.example"), strict=True))
    return {
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "shown", "namespace": "default"},
        "data": {k: base64.b64encode(path.read_bytes()).decode() for k, path in files.items()},
    }  # fmt: skip


async def test_config_shows_envoy_resources_without_keys(
    installation: Installation, client: kube.Client, tmp_path: Path
) -> None:
    manifests = hello("gatehouse-envoy")
    tls = {"certificateRefs": [{"name": "shown"}]}
    manifests[0]["spec"]["listeners"].append(
        {"name": "https", "port": 8443, "protocol": "HTTPS", "tls": tls}
    )
    await apply(client, [certificate(tmp_path), *manifests])
    await holds(client, "Gateway", "web", "Programmed")
    await holds(client, "HTTPRoute", "app", "Accepted")
    done = await config(installation, "default/web")
    assert (done.returncode, done.stderr) == (0, "")
    document = yaml.safe_load(done.stdout)
    assert {"tcp/8080", "tcp/8443"} <= set(document["Listener"])
    assert any("default-app" in name for name in document["Cluster"])
    assert "PRIVATE KEY" not in done.stdout
    assert "-----BEGIN CERTIFICATE-----" in done.stdout
    (secret,) = (s for s in document["Secret"].values() if "tls_certificate" in s)
    private_key = secret["tls_certificate"]["private_key"]["inline_string"]
    assert private_key.startswith("[redacted] (digest ")


def gateway(name: str, gateway_class: str) -> dict[str, Any]:
    gateway_object = hello(gateway_class)[0]
    gateway_object["metadata"]["name"] = name
    return gateway_object


async def test_config_explains_missing_data_plane(
    installation: Installation, client: kube.Client
) -> None:
    parameters = {"group": "gatehouse.dev", "kind": "GatewayParameters", "name": "none"}
    broken = gateway("broken", "gatehouse-envoy")
    broken["spec"]["infrastructure"] = {"parametersRef": parameters}
    await apply(client, [gateway("foreign", "somebody-else"), broken])
    await holds(client, "Gateway", "broken", "Accepted", "False")
    expected = {
        "web": "'web' must be namespace/name",
        "default/absent": 'gateways.gateway.networking.k8s.io "absent" not found',
        "default/foreign": (
            "Gateway default/foreign has no data plane: not accepted by any controller; "
            "its gatewayClassName is somebody-else"
        ),
        "default/broken": "Gateway default/broken has no data plane: Accepted is False: ",
    }
    for words, message in expected.items():
        done = await config(installation, words)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"gatehouse: {message}"), done.stderr
        assert len(done.stderr.splitlines()) == 1


async def test_config_names_state_directory_without_the_data_plane(
    installation: Installation, client: kube.Client, tmp_path: Path
) -> None:
    await apply(client, hello("gatehouse-envoy"))
    await holds(client, "Gateway", "web", "Programmed")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kubeconfig").write_bytes(installation.kubeconfig.read_bytes())
    done = await config(Installation(elsewhere), "default/web")
    assert done.returncode == 1
    assert done.stderr.startswith("not read: default/web-")
    assert f"has no configuration below {elsewhere}/node" in done.stderr
    assert "no command can be run in the Pod" in done.stderr


async def test_config_shows_how_gateways_differ(
    installation: Installation, client: kube.Client
) -> None:
    manifests = hello("gatehouse-envoy")
    other = gateway("other", "gatehouse-envoy")
    other["spec"]["listeners"][0]["port"] = 8081
    await apply(client, [*manifests, other])
    for name in ("web", "other"):
        await holds(client, "Gateway", name, "Programmed")
    done = await config(installation, "default/web", "--diff-with", "default/other")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any(line.startswith("-") and "tcp/8080" in line for line in lines), done.stdout
    assert any(line.startswith("+") and "tcp/8081" in line for line in lines)
    same = await config(installation, "default/web", "--diff-with", "default/web")
    assert same.stdout == "no difference\n"


@pytest.mark.parametrize("proxy", ["nginx", "envoy"])
async def test_config_shows_change_since_the_previous_one(
    installation: Installation, client: kube.Client, proxy: str
) -> None:
    await apply(client, [gateway("changing", f"gatehouse-{proxy}")])
    await holds(client, "Gateway", "changing", "Programmed")
    numbers = itertools.count()

    async def shown() -> bool:
        # An Envoy's changes within two seconds are one update.
        host = f"moved-{next(numbers)}.example"
        moved = {"type": "RequestRedirect", "requestRedirect": {"hostname": host}}
        item = route("late", "/late-path", backendRefs=[], filters=[moved])
        item["spec"]["parentRefs"] = [{"name": "changing"}]
        await apply(client, [item])
        await holds(client, "HTTPRoute", "late", "Accepted")
        done = await config(installation, "default/changing", "--diff")
        lines = done.stdout.splitlines()
        return any(line.startswith("+") and "moved-" in line for line in lines)

    await until(shown)
