"""A kube-apiserver of Kubernetes over an etcd of its own, and the fixture that starts it.

Every test can use the fixture ``kube_apiserver``. It skips where a program is missing.
"""

from __future__ import annotations

import contextlib
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fakes import kubectls, peers
from fakes.kubectls import Kubectl
from fakes.loopback import free_port
from fakes.process import Etcd, Process
from gatehouse.standalone import pki
from gatehouse.standalone.state_directory import State

PROGRAM = (f"kube-apiserver-{peers.KUBERNETES}", "kube-apiserver")
"""Name of the file of the program, and of the program."""


class KubeApiserver(Process):
    """A kube-apiserver without the other programs of a control plane.

    Nothing fills in what controllers make: ServiceAccounts, EndpointSlices, an empty namespace
    that is being deleted.
    """

    def __init__(self, binary: Path, directory: Path, etcd: str, *options: str) -> None:
        self.directory = directory
        self._options = options
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._binary, self._etcd = binary, etcd
        self._state = State(directory / "state")
        self._state.pki.ensure()
        self._state.write_kubeconfigs(self.url)
        self.kubeconfig = self._state.kubeconfig
        self.authority = self._state.pki.ca().cert
        pair = self._state.pki.leaf(pki.ADMIN)
        self.administrator = pair.cert, pair.key
        self._token_key, self._token_public_key = write_token_keys(directory)

    def command(self) -> list[str]:
        serving = self._state.pki.leaf(pki.APISERVER)
        return [
            *(str(self._binary), "--etcd-servers", f"http://{self._etcd}"),
            *("--bind-address", "127.0.0.1", "--secure-port", str(self.port)),
            *("--advertise-address", "192.0.2.1", "--service-cluster-ip-range", "10.96.0.0/16"),
            *("--tls-cert-file", str(serving.cert), "--tls-private-key-file", str(serving.key)),
            *("--client-ca-file", str(self.authority), "--authorization-mode", "Node,RBAC"),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-signing-key-file", str(self._token_key)),
            *("--service-account-key-file", str(self._token_public_key)),
            *self._options,
        ]

    def ready(self) -> bool:
        trust = ssl.create_default_context(cafile=str(self.authority))
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", context=trust, timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def kubectl(self, namespace: str = "default") -> Kubectl:
        """Return a kubectl with all rights."""
        return Kubectl(kubectls.newest(), self.kubeconfig, self.directory, namespace)


def write_token_keys(directory: Path) -> tuple[Path, Path]:
    """Write the key pair of ServiceAccount tokens; return the paths of both keys."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = directory / "tokens.key", directory / "tokens.pub"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return private, public


@contextlib.contextmanager
def running_kube_apiserver(directory: Path, *options: str) -> Iterator[KubeApiserver]:
    """Run a kube-apiserver over a new etcd. Skips the test if a program is missing."""
    if Etcd.binary() is None:
        pytest.skip("no etcd on this machine")
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on this machine")
    binary = peers.binary(*PROGRAM)
    etcd = Etcd(directory / "etcd")
    server = KubeApiserver(binary, directory, etcd.address, *options)
    log = directory / "log"
    try:
        etcd.start(directory / "etcd.log")
        try:
            server.start(log)
        except (RuntimeError, TimeoutError) as error:
            raise RuntimeError(log.read_text(errors="replace")[-4000:]) from error
        yield server
    finally:
        server.kill()
        etcd.kill()


@pytest.fixture(scope="module")
def kube_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApiserver]:
    """A running kube-apiserver. The tests of a file share it, and no test removes its objects."""
    with running_kube_apiserver(tmp_path_factory.mktemp("kube-apiserver")) as server:
        yield server
