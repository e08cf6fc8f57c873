"""Clusters of three kube-apiservers over one etcd, and the people who reach them by a gateway."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509

from fakes.authority import Authority
from fakes.installation import Installation, apply
from fakes.kubectls import Kubectl, newest
from fakes.patience import until
from fakes.process import ApiServer, Etcd
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import pki
from gatehouse.standalone.state_directory import State

Object = dict[str, Any]

PORT = 6443
GATEWAY = "gatehouse-gateway"
"""User name of the gateway at the kube-apiservers."""

IMPERSONATE = {
    "rules": [
        {"apiGroups": [""], "resources": ["users", "groups", "serviceaccounts"],
         "verbs": ["impersonate"]},
        {"apiGroups": ["authentication.k8s.io"], "verbs": ["impersonate"], "resources": [
            "uids", "userextras/authentication.kubernetes.io/credential-id",
            "userextras/authentication.kubernetes.io/node-name",
            "userextras/authentication.kubernetes.io/node-uid",
            "userextras/authentication.kubernetes.io/pod-name",
            "userextras/authentication.kubernetes.io/pod-uid",
        ]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"],
         "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"],
         "verbs": ["create"]},
        {"nonResourceURLs": ["/healthz", "/livez", "/readyz"], "verbs": ["get"]},
    ]
}  # fmt: skip
"""RBAC rules that docs/tasks/kube-apiservers.md recommends for the gateway."""

KUBERNETES = x509.DNSName("kubernetes")
"""The name by which the gateway knows servers."""

EVERYTHING = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


class Cluster:
    """Three kube-apiservers with one authority and one storage."""

    def __init__(self, directory: Path, name: str, etcd: Etcd) -> None:
        directory.mkdir()
        self.name, self.directory = name, directory
        self.state = State(directory / "s")
        storage = f"etcd://{etcd.address}/{name}"
        self.state.directory.mkdir()
        self.state.pki.ensure()
        options = ("--service-account-signing-key-file", str(self.state.pki.token_key))
        self.servers = [
            ApiServer(self.state.directory, *options, storage=storage) for _ in range(3)
        ]
        self._made = 0

    def start(self) -> None:
        for number in range(3):
            self.run(number)

    def run(self, number: int) -> None:
        """Start one server, and wait until it is ready."""
        self.servers[number].start(self.directory / f"{number}.log")

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    @property
    def authority(self) -> bytes:
        return self.state.pki.ca().cert.read_bytes()

    def certificate(self, user: str, *groups: str) -> pki.KeyPair:
        """Issue one to a user."""
        self._made += 1
        stem = self.directory / f"user-{self._made}"
        pair = pki.KeyPair(stem.with_suffix(".crt"), stem.with_suffix(".key"))
        leaf = pki.InstallationCertificate("user", user, organizations=groups)
        pki.issue(self.state.pki.ca(), leaf, pair, datetime.now(UTC))
        return pair

    def prepare(self) -> None:
        """Grant the gateway what it needs, and give people something to do."""
        everybody = {"apiGroups": [""], "resources": ["users", "groups"]}
        helps = {"rules": [{**everybody, "verbs": ["impersonate"]}]}
        items = [
            *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
              for name in ("team", "other")),
            {"apiVersion": "v1", "kind": "ServiceAccount",
             "metadata": {"name": "bot", "namespace": "team"}},
            _role("gateway", IMPERSONATE), _role("helpdesk", helps),
            _bound("gateway", "gateway", _person("User", GATEWAY)),
            _bound("helpdesk", "helpdesk", _person("Group", "helpdesk")),
            _bound("alice", "edit", _person("User", "alice"), "team"),
            _bound("bot", "view",
                   {"kind": "ServiceAccount", "name": "bot", "namespace": "team"}, "team"),
        ]  # fmt: skip
        listed = {"apiVersion": "v1", "kind": "List", "items": items}
        self.kubectl()("apply", "-f", "-", stdin=listed)

    def kubectl(self) -> Kubectl:
        """Return a kubectl of the administrator that bypasses the gateway."""
        return Kubectl(newest(), self.state.kubeconfig, self.directory, "team")


RBAC = "rbac.authorization.k8s.io"


def _person(kind: str, name: str) -> Object:
    return {"apiGroup": RBAC, "kind": kind, "name": name}


def _role(name: str, rules: Object) -> Object:
    head = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole"}
    return {**head, "metadata": {"name": name}, **rules}


def _bound(name: str, role: str, subject: Object, namespace: str = "") -> Object:
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name, **place},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


class Estate:
    """Two clusters, the authority of the gateway's hosts, and kubeconfigs for people."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.etcd = Etcd(directory / "etcd")
        self.clusters = {
            name: Cluster(directory / name, name, self.etcd) for name in ("a.kube", "b.kube")
        }
        self.front = Authority(directory, "front")
        self.address = ""
        """Address of the gateway."""
        self.proxy = ""
        """URL that leads hostnames to the gateway: ``proxy-url`` of kubeconfigs."""

    def start(self) -> None:
        self.etcd.start()
        with ThreadPoolExecutor() as pool:
            list(pool.map(Cluster.start, self.clusters.values()))

    def stop(self) -> None:
        for cluster in self.clusters.values():
            cluster.stop()
        self.etcd.stop()

    def objects(self) -> list[Object]:
        """Return the objects of the installation in front."""
        gateway = {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"name": "apis", "namespace": "default"},
            "spec": {
                "gatewayClassName": "gatehouse-envoy",
                "listeners": [
                    {"name": "api", "port": PORT, "protocol": "gatehouse.dev/KubeAPIServer"}
                ],
            },
        }
        result = [gateway]
        for cluster in self.clusters.values():
            result += [self.client_secret(cluster), self.front_secret(cluster)]
        return result

    def client_secret(self, cluster: Cluster) -> Object:
        """Return the Secret with the gateway's client certificate and the CA of the servers."""
        pair = cluster.certificate(GATEWAY)
        return secret(f"{cluster.name}-client", pair.cert, pair.key, cluster.authority)

    def front_secret(self, cluster: Cluster) -> Object:
        """Return the Secret with the gateway's server certificate and the CA of the users."""
        cert, key = self.front.issue(cluster.name, x509.DNSName(cluster.name))
        return secret(f"{cluster.name}-front", cert, key, cluster.authority)

    def upstream_cluster(self, name: str, **spec: Any) -> Object:
        servers = self.clusters[name].servers
        return {
            "apiVersion": "proxy.kubegateway.io/v1alpha1",
            "kind": "UpstreamCluster",
            "metadata": {"name": name},
            "spec": {
                "servers": [{"endpoint": server.url} for server in servers],
                "clientConfig": {
                    "serverName": "kubernetes",
                    "secretRef": {"namespace": "default", "name": f"{name}-client"},
                },
                "secureServing": {
                    "secretRef": {"namespace": "default", "name": f"{name}-front"}
                },
                "dispatchPolicies": [{"rules": EVERYTHING}],
                **spec,
            },
        }  # fmt: skip

    def kubeconfig(self, name: str, user: Object, label: str, *, by_address: bool = False) -> Path:
        """Write a kubeconfig that leads to a cluster by the gateway: by the cluster's name, or by
        the gateway's address, with the name in the handshake alone.
        """
        cluster = {"certificate-authority": str(self.front.file)}
        if by_address:
            cluster |= {"server": f"https://{self.address}:{PORT}", "tls-server-name": name}
        else:
            cluster |= {"server": f"https://{name}:{PORT}", "proxy-url": self.proxy}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path = self.directory / f"{label}@{name}.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    def by_certificate(
        self, name: str, user: str, *groups: str, of: str = "", by_address: bool = False
    ) -> Path:
        """Return the kubeconfig of a user with a certificate. ``of`` names another issuer."""
        pair = self.clusters[of or name].certificate(user, *groups)
        credentials = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
        label = f"{user}-of-{of or name}{'-there' if by_address else ''}"
        return self.kubeconfig(name, credentials, label, by_address=by_address)

    def kubectl(self, kubeconfig: Path, namespace: str = "team") -> Kubectl:
        return Kubectl(newest(), kubeconfig, self.directory, namespace)


def secret(name: str, cert: Path, key: Path, authority: bytes) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": "default"},
        "data": {
            "tls.crt": b64(cert.read_bytes()),
            "tls.key": b64(key.read_bytes()),
            "ca.crt": b64(authority),
        },
    }


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Estate]:
    """Run the clusters for a while; nothing is in front of them yet."""
    estate = Estate(directory)
    try:
        estate.start()
        yield estate
    finally:
        estate.stop()


@contextlib.asynccontextmanager
async def http_proxy_to(address: str) -> AsyncIterator[str]:
    """Run an HTTP proxy that leads every name to the gateway. Yield its URL."""

    tunnels: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def serve(reader: asyncio.StreamReader, ends: list[asyncio.StreamWriter]) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            there, onward = await asyncio.open_connection(address, PORT)
            ends.append(onward)
            ends[0].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(pump(reader, onward), pump(there, ends[0]))

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        task = asyncio.create_task(serve(reader, ends))
        tunnels[task] = ends
        task.add_done_callback(end)

    def end(task: asyncio.Task[None]) -> None:
        for writer in tunnels.pop(task):
            writer.transport.abort()

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()
        # A task may be cancelled before it runs at all.
        running = dict(tunnels)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for writer in (writer for ends in running.values() for writer in ends):
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def put_in_front(
    estate: Estate, installation: Installation, client: kube.Client, **spec: Any
) -> str:
    """Apply the clusters. Return the gateway's address once all are in traffic."""
    await apply(client, estate.objects())
    for name in estate.clusters:
        await client.create(resources.UPSTREAM_CLUSTERS, estate.upstream_cluster(name, **spec))
    for name in estate.clusters:
        await wait_for_condition(client, name, "Programmed")
    gateway = await client.get(resources.GATEWAYS, "apis", "default")
    return str(gateway["status"]["addresses"][0]["value"])


async def wait_for_condition(
    client: kube.Client, name: str, kind: str, status: str = "True"
) -> Object:
    """Wait for a condition of an UpstreamCluster, of its newest generation."""

    async def check() -> Object | None:
        upstream_cluster = await client.get(resources.UPSTREAM_CLUSTERS, name)
        generation = upstream_cluster["metadata"]["generation"]
        for condition in (upstream_cluster.get("status") or {}).get("conditions") or ():
            fresh = condition.get("observedGeneration") == generation
            if fresh and (condition["type"], condition["status"]) == (kind, status):
                return dict(condition)
        return None

    condition: Object = await until(check)
    return condition
