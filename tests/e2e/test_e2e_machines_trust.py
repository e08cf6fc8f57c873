"""Access of external machines to their configuration while their certificates are valid."""

from __future__ import annotations

import json
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import grpc
import grpc.aio
import pytest

from fakes.agent_v3 import Claimant
from fakes.external_fixtures import MARKS, OUTSIDE, authority, cluster, logged, options, place
from fakes.external_machines import Machine
from fakes.external_objects import balancer, join, listeners, service, wait_for_status
from fakes.external_traffic import node, web
from fakes.installation import Installation
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.controller.options import SERVER_NAME
from gatehouse.dataplane.file_set import base64_sha256
from gatehouse.dataplane.machine_identity import MachineIdentity as Name
from gatehouse.kube import client as kube
from gatehouse.standalone import pki

__all__ = ["authority", "cluster", "options", "place"]

pytestmark = MARKS


class Caller:
    """Calls the channel for machines with a certificate, or without one."""

    def __init__(
        self, trust: Path, client_certificate: tuple[Path, Path] | None, port: int = OUTSIDE
    ) -> None:
        pair = (
            (client_certificate[1].read_bytes(), client_certificate[0].read_bytes())
            if client_certificate
            else ()
        )
        self._credentials = grpc.ssl_channel_credentials(trust.read_bytes(), *pair)
        self._port = port

    async def refused(self, token: str = "not a token", digest: str = "") -> tuple[str, str]:
        names = (("grpc.ssl_target_name_override", SERVER_NAME),)
        async with grpc.aio.secure_channel(
            f"127.0.0.1:{self._port}", self._credentials, names
        ) as channel:
            caller = Claimant(channel, token, {})
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await (caller.file(digest) if digest else caller.connect())
            return error.value.code().name, error.value.details() or ""


def issued(
    authority: Path, directory: Path, uri: str, now: datetime | None = None
) -> tuple[Path, Path]:
    pair = pki.KeyPair(directory / "own.crt", directory / "own.key")
    ca = pki.KeyPair(authority / "ca.crt", authority / "ca.key")
    pki.issue(ca, pki.InstallationCertificate("own", "", uri=uri), pair, now or datetime.now(UTC))
    return pair.cert, pair.key


async def test_machine_channel_rejects_clients_without_machine_certificate(
    cluster: kube.Client, authority: Path, place: Path, installation: Installation
) -> None:
    trust = authority / "ca.crt"
    load_balancer = balancer("closed", "nginx", ("lb-1",), listeners(8120))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, load_balancer)
    mine = Name("edge", "closed", "lb-1").uri
    closed = ("UNAVAILABLE",)

    async def known() -> bool:
        code, _ = await Caller(trust, issued(authority, place, mine)).refused(digest="nothing")
        return code == "NOT_FOUND"

    await until(known)
    # Without a certificate, or with one of another authority, or an old one: not even a handshake.
    token, _ = await cluster.create_token("default", "default", [SERVER_NAME], 600)
    assert (await Caller(trust, None).refused(token))[0] in closed
    strange = place / "strange"
    strange.mkdir()
    pki.ensure_channel(strange, ["x"], [], datetime.now(UTC))
    assert (await Caller(trust, issued(strange, place, mine)).refused(token))[0] in closed
    old = datetime.now(UTC) - pki.LEAF_LIFE - timedelta(minutes=1)
    assert (await Caller(trust, issued(authority, place, mine, old)).refused())[0] in closed
    # Certificates of the authority that are no machine's.
    code, words = await Caller(trust, (authority / "node.crt", authority / "node.key")).refused()
    assert (code, "exactly one URI" in words) == ("UNAUTHENTICATED", True)
    code, words = await Caller(trust, issued(authority, place, "spiffe://other/x")).refused(token)
    assert (code, "is not of the form" in words) == ("UNAUTHENTICATED", True)
    # Machines that no load balancer lists.
    for uri in (Name("edge", "closed", "lb-9").uri, Name("edge", "none", "lb-1").uri):
        code, words = await Caller(trust, issued(authority, place, uri)).refused()
        assert (code, "has no host" in words) == ("UNAVAILABLE", True)
    # On the channel of Pods a certificate says nothing.
    addresses = json.loads((installation.state / "addresses.json").read_text())
    port = int(addresses["agent"].rpartition(":")[2])
    code, words = await Caller(trust, issued(authority, place, mine), port).refused()
    assert code == "UNAUTHENTICATED"
    # The API server accepts no machine certificate.
    context = ssl.create_default_context(cafile=str(trust))
    context.load_cert_chain(*issued(authority, place, mine))
    server = cluster_url(installation)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{server}/api/v1/namespaces/edge/services", ssl=context) as response,
    ):
        assert response.status == 401


def cluster_url(installation: Installation) -> str:
    text = installation.kubeconfig.read_text()
    return text.partition("server: ")[2].split()[0]


async def test_file_of_another_load_balancer_is_denied_and_reported(
    cluster: kube.Client, authority: Path, place: Path
) -> None:
    await cluster.create(resources.SERVICES, service())
    for name, port in (("mine", 8130), ("theirs", 8140)):
        load_balancer = balancer(name, "nginx", ("lb-1",), listeners(port))
        await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, load_balancer)
    machine = Machine(place, "lb-1", OUTSIDE)
    machine.certify(authority, "edge/theirs")
    async with machine.running():
        await wait_for_status(cluster, "theirs", "Programmed")
        digest = base64_sha256(
            holding(machine.directory / "root" / "current" / "gatehouse", b":8140")
        )
        mine = issued(authority, place, Name("edge", "mine", "lb-1").uri)
        code, words = await Caller(authority / "ca.crt", mine).refused(digest=digest)
        assert (code, "no file with this hash" in words) == ("NOT_FOUND", True)

        async def events() -> set[tuple[str, str]]:
            result = (await cluster.list(resources.EVENTS, "edge")).items
            return {
                (event["involvedObject"]["name"], event["message"])
                for event in result
                if event["reason"] == "UnauthorizedAgent"
            }

        assert await until(events) == {
            (
                "theirs",
                "Machine lb-1 of ExternalLoadBalancer edge/mine asked for a file of this one, "
                "and was refused.",
            ),
        }


def holding(directory: Path, word: bytes) -> bytes:
    """Return the content of a file that contains `word`."""
    contents = (path.read_bytes() for path in directory.rglob("*") if path.is_file())
    return next(content for content in contents if word in content)


@pytest.mark.parametrize("kind", ["nginx", "envoy"])
async def test_removed_or_expired_machine_receives_no_changes(
    cluster: kube.Client, authority: Path, place: Path, kind: str
) -> None:
    machine = Machine(place, "lb-1", OUTSIDE, kind)
    machine.certify(authority, f"edge/{kind}")
    load_balancer = balancer(kind, kind, ("lb-1",), listeners(8150))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, load_balancer)
    await cluster.create(resources.SERVICES, service())

    async def named(*hosts: str) -> None:
        spec = {"spec": {"hosts": [{"name": host} for host in hosts]}}
        await cluster.patch(resources.EXTERNAL_LOAD_BALANCERS, kind, spec, "edge")

    async with node(1, place), machine.running():
        await wait_for_status(cluster, kind, "Programmed")
        await named("lb-2")
        await logged(machine, f"ExternalLoadBalancer edge/{kind} has no host 'lb-1'")
        await cluster.delete(resources.NODES, "n1")
        # It goes on with what it had.
        assert await web(8150) == (200, "node-1")
        await join(cluster, 1)
        await named("lb-1")
        await wait_for_status(cluster, kind, "Programmed")

    soon = datetime.now(UTC) - pki.LEAF_LIFE + timedelta(seconds=15)
    uri = Name("edge", kind, "lb-1").uri
    ca = pki.KeyPair(authority / "ca.crt", authority / "ca.key")
    pair = pki.KeyPair(machine.certificates / "tls.crt", machine.certificates / "tls.key")
    pki.issue(ca, pki.InstallationCertificate("tls", "", uri=uri), pair, soon)
    async with node(1, place), machine.running():
        await wait_for_status(cluster, kind, "Programmed")
        await wait_for_status(cluster, kind, "HostSyncFailed", "lb-1: agent is not connected")
        assert await web(8150) == (200, "node-1")
        machine.certify(authority, f"edge/{kind}")
        await wait_for_status(cluster, kind, "Programmed")
