"""A controller records Events and status for certificates that expire without other changes."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from fakes import patience
from fakes.authority import Authority, self_signed
from fakes.inprocess import Server
from fakes.replica import Replica
from gatehouse.apis.resources import EVENTS, UPSTREAM_CLUSTERS
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State

NAME = "a.example"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[kube.Client]:
    server = Server(State(tmp_path / "s"))
    async with server.running(), server.client() as client:
        replica = Replica(server)
        await replica.until_ready()
        yield client
        await replica.stop()


def pair(authority: Authority, ends: float) -> dict[str, str]:
    """Return a certificate that expires in so many seconds, and its key."""
    files = authority.issue("x", x509.DNSName(NAME), ends=timedelta(seconds=ends))
    chain, key = (base64.b64encode(file.read_bytes()).decode() for file in files)
    return {"certData": chain, "keyData": key}


async def reasons(client: kube.Client) -> dict[str, str]:
    cluster = await client.get(UPSTREAM_CLUSTERS, NAME)
    return {
        condition["type"]: condition["reason"]
        for condition in cluster.get("status", {}).get("conditions", ())
    }


async def events(client: kube.Client) -> list[dict[str, Any]]:
    listed = (await client.list(EVENTS, "default")).items
    # Other conditions are recorded too, such as that no Gateway serves the cluster.
    return [
        event
        for event in listed
        if event["involvedObject"]["kind"] == "UpstreamCluster" and event["reason"] == "Expired"
    ]


async def until(client: kube.Client, holds: Callable[[dict[str, str], list[Any]], bool]) -> None:
    async with patience.limit():
        while not holds(await reasons(client), await events(client)):
            await patience.pause()


def authorities(ends: float) -> dict[str, str]:
    """Return a CA certificate that expires in so many seconds."""
    text = self_signed("ca", timedelta(seconds=ends))
    return {"clientCAData": base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize("field", ["certData", "clientCAData"])
async def test_expired_certificate_is_reported_once_until_renewed(
    client: kube.Client, tmp_path: Path, field: str
) -> None:
    authority = Authority(tmp_path)

    def serving(ends: float) -> dict[str, str]:
        return pair(authority, ends) if field == "certData" else authorities(ends)

    spec = {
        "servers": [{"endpoint": "http://10.0.0.1:8080"}],
        "dispatchPolicies": [{"rules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}],
        "secureServing": serving(4),
    }
    await client.create(UPSTREAM_CLUSTERS, {"metadata": {"name": NAME}, "spec": spec})
    await until(client, lambda held, _: held.get("CertificateValid") == "ExpiresSoon")
    await until(
        client,
        lambda held, event_list: held["CertificateValid"] == "Expired" and bool(event_list),
    )
    (event,) = await events(client)
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "Expired", 1)
    assert event["message"].startswith(f"spec.secureServing.{field}: the certificate expired at ")
    assert event["involvedObject"]["name"] == NAME
    await client.patch(UPSTREAM_CLUSTERS, NAME, {"spec": {"secureServing": serving(3 * 86400)}})
    await until(client, lambda conditions, _: "CertificateValid" not in conditions)
    assert len(await events(client)) == 1
