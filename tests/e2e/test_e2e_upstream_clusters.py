"""UpstreamClusters in a running installation: refused in words, judged, renewed, explained."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509 import DNSName

from fakes import kube_upstream
from fakes.authority import Authority
from fakes.chromium import CHROMIUM, open_page
from fakes.console import log_in, running_console, show
from fakes.installation import BACKEND, Installation, apply
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from fakes.upstream_worlds import EVERYTHING, b64, ca, cluster, gateway, secret
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = pytest.mark.process

Object = dict[str, Any]
NAME = "prod.example"


async def said(client: kube.Client, kind: str, status: str, name: str = NAME) -> Object:
    """Wait for a condition of an UpstreamCluster."""

    async def check() -> Object | None:
        upstream_cluster = await client.get(resources.UPSTREAM_CLUSTERS, name)
        for condition in (upstream_cluster.get("status") or {}).get("conditions") or ():
            if (condition["type"], condition["status"]) == (kind, status):
                return dict(condition)
        return None

    condition: Object = await until(check)
    return condition


async def create(client: kube.Client, raw: Object) -> None:
    await client.create(resources.UPSTREAM_CLUSTERS, raw)


async def test_invalid_policy_subset_is_rejected_with_a_message(client: kube.Client) -> None:
    with pytest.raises(kube.Invalid, match="upstreamSubset of every policy must be among"):
        policies = [{"rules": [EVERYTHING], "upstreamSubset": ["https://other"]}]
        await create(client, cluster(dispatchPolicies=policies))


async def test_cluster_waits_for_credentials_and_reports_their_changes(client: kube.Client) -> None:
    await create(client, cluster())
    await said(client, "Accepted", "False")
    await apply(client, [gateway("envoy")])
    missing = await said(client, "ResolvedRefs", "False")
    assert "Secret default/credentials not found" in missing["message"]
    assert (await said(client, "Accepted", "False"))["reason"] == "Invalid"
    await apply(client, [secret(ca())])
    await said(client, "ResolvedRefs", "True")
    await said(client, "Accepted", "True")

    async def attached() -> Any:
        """Return the listener. The status of the Gateway is written apart from the cluster's."""
        listed = await client.get(resources.GATEWAYS, "envoy", "default")
        listeners = listed.get("status", {}).get("listeners") or [{}]
        return listeners[0].get("attachedRoutes") == 1 and listeners

    (listener,) = await until(attached)
    assert listener["supportedKinds"] == [
        {"group": "proxy.kubegateway.io", "kind": "UpstreamCluster"}
    ]
    await client.patch(
        resources.SECRETS, "credentials", {"data": {"ca.crt": b64(b"nonsense")}}, "default"
    )
    assert "must be PEM certificates" in (await said(client, "ResolvedRefs", "False"))["message"]
    await client.patch(resources.SECRETS, "credentials", {"data": {"ca.crt": ca()}}, "default")
    await said(client, "ResolvedRefs", "True")
    assert base64.b64decode(ca()).startswith(b"-----BEGIN")


async def test_unready_server_is_reported_with_its_reason(
    client: kube.Client, installation: Installation
) -> None:
    name = "unready.example"
    await apply(client, [gateway("envoy"), secret(ca())])
    await create(client, cluster(name, servers=[{"endpoint": "https://127.0.0.1:1"}]))
    condition = await said(client, "ServersReady", "False", name)
    reason, message = "ServersNotReady", "127.0.0.1:1: connection refused"
    assert (condition["reason"], condition["message"]) == (reason, message)

    async def recorded() -> bool:
        events = (await client.list(resources.EVENTS, "default")).items
        return any((event["reason"], event["message"]) == (reason, message) for event in events)

    await until(recorded)
    assert message in await status_of(installation)
    await client.delete(resources.UPSTREAM_CLUSTERS, name)


async def status_of(installation: Installation) -> str:
    """Return the output of `gatehouse status`."""
    status = (sys.executable, "-m", "gatehouse", "status")
    done = await asyncio.to_thread(
        subprocess.run,
        [*status, "--kubeconfig", str(installation.kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "600"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_wrong_server_name_is_reported_with_its_reason(
    client: kube.Client, installation: Installation, tmp_path: Path
) -> None:
    name, issuer = "named.example", Authority(tmp_path)
    credentials = secret(b64(issuer.pem))
    credentials["metadata"]["name"] = "named"
    config = {"secretRef": {"namespace": "default", "name": "named"}, "serverName": "wrong.test"}
    context = issuer.server("kube", DNSName("kube.test"))
    async with kube_upstream.serving("named", context) as server:
        endpoint = f"127.0.0.1:{server.port}"
        servers = [{"endpoint": f"https://{endpoint}"}]
        await apply(client, [gateway("envoy"), credentials])
        await create(client, cluster(name, servers=servers, clientConfig=config))
        condition = await said(client, "ServersReady", "False", name)
        assert condition["message"].startswith(f"{endpoint}: TLS: certificate not valid: ")
        assert "'wrong.test'" in condition["message"]
        assert condition["message"] in await status_of(installation)
        right = {"spec": {"clientConfig": {**config, "serverName": "kube.test"}}}
        await client.patch(resources.UPSTREAM_CLUSTERS, name, right)

        async def is_ready() -> bool:
            return condition["message"] not in await status_of(installation)

        await until(is_ready)
    await client.delete(resources.UPSTREAM_CLUSTERS, name)


@pytest.mark.skipif(not CHROMIUM, reason="needs Debian's package chromium")
async def test_console_shows_why_a_server_is_not_ready(client: kube.Client) -> None:
    name = "console.example"
    await create(client, cluster(name, servers=[{"endpoint": "https://127.0.0.1:1"}]))
    await said(client, "ServersReady", "False", name)
    rows = "[...document.querySelectorAll('tr')].map((row) => row.innerText)"
    reason = "not ready: connection refused, at Gateway default/envoy"
    async with running_console(client) as console, open_page() as page:
        await log_in(page, console)
        await show(page, "kube-apiservers")
        await page.until(f"{rows}.some((row) => row.includes({json.dumps(reason)}))")
        # The data plane has a metric of the server.
        server = "row.startsWith('https://127.0.0.1:1\\t')"
        await page.until(f"{rows}.some((row) => {server} && /\\t0\\t0\\.0$/.test(row))")
    await client.delete(resources.UPSTREAM_CLUSTERS, name)


async def test_hostname_of_another_cluster_is_rejected(client: kube.Client) -> None:
    rejected = f"serverNames.0.: Invalid value: .*already used by UpstreamCluster {NAME}"
    with pytest.raises(kube.Invalid, match=rejected):
        await create(client, cluster("young.example", secureServing={"serverNames": [NAME]}))
    recorded = (await client.get(resources.UPSTREAM_CLUSTERS, NAME))["status"]["ownedHosts"]
    assert recorded == [{"gateway": "default/envoy", "hosts": [NAME]}]


async def test_shared_limits_are_published_as_rate_limit_conditions(
    client: kube.Client,
) -> None:
    limit = {
        "name": "s",
        "strategy": "globalAllocate",
        "maxRequestsInflight": {"max": 1},
        "globalMaxRequestsInflight": {"max": 10},
    }
    manifest = cluster(
        "shared.example",
        flowControl={"flowControlSchemas": [limit]},
        dispatchPolicies=[{"rules": [EVERYTHING], "flowControlSchemaName": "s"}],
    )
    gates = {"proxy.kubegateway.io/feature-gates": "GlobalRateLimiter=true"}
    manifest["metadata"]["annotations"] = gates
    await create(client, manifest)

    async def told() -> dict[str, Object]:
        rate_limit_conditions = (await client.list(resources.RATE_LIMIT_CONDITIONS)).items
        return {
            rate_limit_condition["metadata"]["name"]: rate_limit_condition
            for rate_limit_condition in rate_limit_conditions
        }

    async def both() -> dict[str, Object] | None:
        result = await told()
        whole = "status" in result.get("shared.example.state", {})
        return result if whole and len(result) == 2 else None

    state, one = (rate_limit for _, rate_limit in sorted((await until(both)).items(), reverse=True))
    (item,) = state["status"]["limitItemStatuses"]
    assert item == {"name": "s", "maxRequestsInflight": {"max": 10}}
    pods = (await client.list(resources.PODS, "default")).items
    assert one["spec"]["instance"] in {f"default.{pod['metadata']['name']}" for pod in pods}
    (item,) = one["spec"]["limitItemConfigurations"]
    assert item["maxRequestsInflight"] == {"max": 10}
    await client.delete(resources.UPSTREAM_CLUSTERS, "shared.example")

    async def none() -> bool:
        return not await told()

    await until(none)


async def test_nginx_listener_with_kube_apiserver_protocol_is_not_accepted(
    client: kube.Client,
) -> None:
    await apply(client, [gateway("nginx")])

    async def refused() -> Object | None:
        upstream_cluster = await client.get(resources.GATEWAYS, "nginx", "default")
        for listener in (upstream_cluster.get("status") or {}).get("listeners") or ():
            for condition in listener["conditions"]:
                if condition["type"] == "Accepted" and condition["reason"] == "UnsupportedProtocol":
                    return dict(condition)
        return None

    assert "only by gatehouse.dev/envoy" in (await until(refused))["message"]
    upstream_cluster = await client.get(resources.UPSTREAM_CLUSTERS, NAME)
    assert [entry["gatewayRef"]["name"] for entry in upstream_cluster["status"]["gateways"]] == [
        "envoy"
    ]


async def explained(*words: str, installation: Installation) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "gatehouse", "explain", "kube-request", "-o", "json", *words)
    return await asyncio.to_thread(
        subprocess.run,
        [*command, "--kubeconfig", str(installation.kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
    )


async def test_explain_reads_the_installation(installation: Installation) -> None:
    words = ("--cluster", NAME, "--as", "alice", "--verb", "list", "--resource", "pods")
    done = await explained(*words, installation=installation)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["servers"] == ["https://127.0.0.1:6443"]


async def test_request_is_sent_and_compared_with_its_explanation(
    client: kube.Client, installation: Installation, backends: None, tmp_path: Path
) -> None:
    """The Gateway answers as explained, for a user without and with a certificate."""
    name, people = "sent.example", Authority(tmp_path, "people")
    front = Authority(tmp_path)
    cert, key = front.issue("front", DNSName(name))
    anonymous = {"users": ["system:anonymous"], "nonResourceURLs": ["/version"], "verbs": ["get"]}
    alice = {"users": ["alice"], "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    none = {"users": ["system:anonymous"], "nonResourceURLs": ["/none"], "verbs": ["get"]}
    serving = {"certData": b64(cert.read_bytes()), "keyData": b64(key.read_bytes()),
               "clientCAData": b64(people.pem)}  # fmt: skip
    await create(client, cluster(
        name, servers=[{"endpoint": f"http://{BACKEND[0]}:{BACKEND[1]}"}],
        clientConfig={}, secureServing=serving, logging={"mode": "on"},
        flowControl={"flowControlSchemas": [{"name": "no", "maxRequestsInflight": {"max": 0}}]},
        dispatchPolicies=[{"rules": [none], "flowControlSchemaName": "no"},
                          {"rules": [anonymous, alice]}],
    ))  # fmt: skip
    await said(client, "Programmed", "True", name)
    pair = people.issue("alice")
    user = {"client-certificate": str(pair[0]), "client-key": str(pair[1])}
    there = {"server": f"https://{name}:6443", "certificate-authority": str(front.file)}
    config = tmp_path / "alice.kubeconfig"
    config.write_text(json.dumps({
        "clusters": [{"name": "c", "cluster": there}], "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }))  # fmt: skip
    by_alice = ("--as", "alice", "--credentials", str(config))
    pods = ("--resource", "pods", "--namespace", "team")
    results: list[tuple[object, ...]] = []
    for words, status, text, user_name in (
        (("--path", "/version"), 0, "200, as expected", "system:anonymous"),
        (("--path", "/other"), 0, "403", None),
        (("--path", "/none"), 0, "429", "system:anonymous"),
        ((*by_alice, "--verb", "list", *pods), 0, "200, as expected", "alice"),
        ((*by_alice, "--verb", "create", *pods), 0, "200, as expected", "alice"),
        # Without credentials, the user is another one than that of the explanation.
        (("--as", "alice", "--verb", "list", *pods), 4, "403", None),
    ):

        async def agrees(
            words: tuple[str, ...] = words, status: int = status, text: str = text,
            user_name: str | None = user_name,
        ) -> bool:  # fmt: skip
            done = await explained("--cluster", name, "--send", *words, installation=installation)
            results.append((words, done.stdout, done.stderr))
            sent = json.loads(done.stdout)["sent"]
            return (
                done.returncode == status
                and sent["text"].startswith(text)
                and sent.get("logged", {}).get("user") == user_name
            )

        try:
            await until(agrees)
        except TimeoutError:
            raise AssertionError(results[-1]) from None
    await client.delete(resources.UPSTREAM_CLUSTERS, name)
