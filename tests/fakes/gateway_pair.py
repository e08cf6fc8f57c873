"""KubeGateway and Gatehouse side by side: the same objects, servers and clients."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509

from fakes import envoys, patience, peers, reviewer_process
from fakes.authority import Authority
from fakes.envoy_serving import Served
from fakes.kube_serving import Connection
from fakes.kubegateway import VERSION, KubeGateway
from fakes.loopback import loopback_network
from fakes.process import Etcd
from fakes.review_server import ReviewServer
from fakes.upstream_worlds import CREATED, LISTENER, World, b64

Object = dict[str, Any]
SERVERS = ("a", "b", "c")
PORT = 6443


class Outcome(msgspec.Struct, frozen=True):
    """Result of a request."""

    status: int
    """0 if the gateway closed the connection without a response."""
    server: str = ""
    """Name of the server that answered; empty: the gateway itself."""
    identity: tuple[tuple[str, str], ...] = ()
    """Headers for impersonation that the server received, sorted."""
    reason: str = ""
    """Reason in the Status of the gateway."""
    message: str = ""

    @property
    def decision(self) -> tuple[int, str, tuple[tuple[str, str], ...], str]:
        """Status, server, identity, and the flow control schema that rejected the request."""
        limit = re.search(r"flowControl\(name=([^,]*),", self.message)
        return self.status, self.server, self.identity, limit[1] if limit else ""


def _outcome(status: int, body: bytes) -> Outcome:
    try:
        document = msgspec.json.decode(body) if body else {}
    except msgspec.DecodeError:
        document = {"message": body.decode("latin-1")}
    if "service" in document:
        headers = ((key, value) for key, value in document["headers"])
        identity = sorted(pair for pair in headers if pair[0].startswith("impersonate-"))
        return Outcome(status, document["service"], tuple(identity))
    return Outcome(status, "", (), document.get("reason", ""), document.get("message", ""))


class GatewayPair:
    """Both gateways. :meth:`serve` gives both the same objects."""

    def __init__(self, directory: Path, served: Served, kubegateway: KubeGateway) -> None:
        self.kubegateway = kubegateway
        self.servers = {name: ReviewServer(name) for name in SERVERS}
        self.clients = Authority(directory, "clients")
        self.authority = Authority(directory, "servers")
        self._served = served
        self._contexts: dict[tuple[tuple[str, ...], bool], ssl.SSLContext] = {}

    def manifest(self, name: str, policies: list[Object], schemas: list[Object]) -> Object:
        """Return an UpstreamCluster; policies name servers by their short names."""
        urls = {key: f"https://127.0.0.1:{server.port}" for key, server in self.servers.items()}
        chain, key = self.authority.issue(name, x509.DNSName(name))
        for policy in policies:
            policy["upstreamSubset"] = [urls[short] for short in policy.get("upstreamSubset", ())]
        return {
            "apiVersion": "proxy.kubegateway.io/v1alpha1",
            "kind": "UpstreamCluster",
            "metadata": {"name": name},
            "spec": {
                "servers": [{"endpoint": url} for url in urls.values()],
                "clientConfig": {
                    "bearerToken": b64(b"gateway"),
                    "caData": b64(self.authority.pem),
                    "serverName": "kube.test",
                },
                "secureServing": {
                    "certData": b64(chain.read_bytes()),
                    "keyData": b64(key.read_bytes()),
                    "clientCAData": b64(self.clients.pem),
                },
                "flowControl": {"flowControlSchemas": schemas},
                "dispatchPolicies": policies,
            },
        }

    async def serve(self, manifests: list[Object]) -> None:
        """Serve these clusters at both, and wait until both know that servers are ready."""
        for manifest in manifests:
            status, text = await asyncio.to_thread(self.kubegateway.create, manifest)
            assert status == 201, text
        await self.serve_at_gatehouse(manifests)

    async def serve_at_gatehouse(self, manifests: list[Object], *, certificate: str = "") -> None:
        """Serve these clusters at Gatehouse.

        ``certificate``: name in the certificate of the listener; empty: it has none.
        """
        world, listener = World(), LISTENER
        if certificate:
            chain, key = self.authority.issue(certificate, x509.DNSName(certificate))
            data = {"tls_crt": b64(chain.read_bytes()), "tls_key": b64(key.read_bytes())}
            world.secret("listener", **data)
            listener = {**LISTENER, "tls": {"certificateRefs": [{"name": "listener"}]}}
        world.gateway(listeners=[listener])
        for manifest in manifests:
            world.put(
                "UpstreamCluster", manifest["metadata"]["name"],
                metadata={"creationTimestamp": CREATED}, spec=manifest["spec"],
            )  # fmt: skip
        await self._served.serve(world.compiled())
        for manifest in manifests:
            async with patience.limit():
                while any(outcome.status == 503 for outcome in await self.ask(manifest, "probe")):
                    await patience.pause()

    def _context(self, user: tuple[str, ...], sni: bool) -> ssl.SSLContext:
        if (user, sni) not in self._contexts:
            context = ssl.create_default_context(cafile=str(self.authority.file))
            if not sni:
                # KubeGateway then presents a certificate of another authority.
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if user:
                context.load_cert_chain(*self.clients.issue_to(*user))
            self._contexts[user, sni] = context
        return self._contexts[user, sni]

    async def ask(
        self, cluster: Object, *user: str, target: str = "/version", method: str = "GET",
        headers: tuple[tuple[str, str], ...] = (), sni: bool = True,
    ) -> tuple[Outcome, Outcome]:  # fmt: skip
        """Return the outcomes at KubeGateway and at Gatehouse.

        Without a user, the client has no certificate. Without ``sni``, it sends no server name.
        """
        name = cluster["metadata"]["name"]
        context = self._context(user, sni)
        places = (("127.0.0.1", self.kubegateway.port), (self._served.address, PORT))
        outcomes: list[Outcome] = []
        for host, port in places:
            # Addresses are never sent as server names.
            server_name = name if sni else host
            try:
                streams = await asyncio.open_connection(
                    host, port, ssl=context, server_hostname=server_name
                )
            except (ConnectionError, ssl.SSLError):
                outcomes.append(Outcome(0))
                continue
            connection = Connection(*streams)
            try:
                answer = await connection.ask(target, method, *headers, host=name)
                outcomes.append(_outcome(answer.status, answer.body))
            finally:
                connection.close()
        return outcomes[0], outcomes[1]


@contextlib.asynccontextmanager
async def gateway_pair() -> AsyncIterator[GatewayPair]:
    """Run both for a while. Skips where a program is missing."""
    if Etcd.binary() is None:
        pytest.skip("no etcd on this machine")
    binary = peers.binary(f"kubegateway-{VERSION}", "kube-gateway")
    address = f"{loopback_network()}.1"
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ghp-")))
        etcd = Etcd(directory / "etcd")
        await asyncio.to_thread(etcd.start, directory / "etcd.log")
        stack.callback(etcd.kill)
        kubegateway = KubeGateway(binary, directory, etcd.address)
        await asyncio.to_thread(kubegateway.start, directory / "kubegateway.log")
        stack.callback(kubegateway.kill)
        envoy = await stack.enter_async_context(envoys.running(directory))
        reviewer = await stack.enter_async_context(reviewer_process.running(directory))
        await reviewer.serving()
        pair = GatewayPair(directory, Served(envoy, address), kubegateway)
        for server in pair.servers.values():
            context = pair.authority.server("kube", x509.DNSName("kube.test"))
            await stack.enter_async_context(server.serving(context))
        yield pair
