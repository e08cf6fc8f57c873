"""Machines that host clusters, and those that use them: gateway, client, node and Pod.

outside --192.0.2.0/24-- hosting --198.51.100.0/24-- node --10.244.1.0/24-- pod
"""

from __future__ import annotations

import ipaddress
import json
import signal
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from fakes import patience
from fakes.authority import Authority
from fakes.loopback import free_port
from fakes.machines import Machine, join, resolving
from fakes.patience import SECONDS
from fakes.process import Process
from gatehouse.kube import client as kube

POOL = "203.0.113.0/24"
"""Addresses of Gateways, all of the hosting machine."""
CLIENT, NODE = "192.0.2.1", "198.51.100.1"
NODE_BALANCER = "2001:db8:2::2"
"""The hosting machine, as the node reaches it by IPv6."""
SERVICE_NAME = "kubernetes.default.svc.cluster.local"


class Estate:
    """The four machines and their wires."""

    def __init__(self) -> None:
        machines = [Machine(name) for name in ("hosting", "outside", "node", "pod")]
        self.hosting, self.outside, self.node, self.pod = self.machines = machines
        join(self.outside, self.hosting, "192.0.2", "2001:db8:1::")
        join(self.node, self.hosting, "198.51.100", "2001:db8:2::")
        join(self.pod, self.node, "10.244.1", "fd00:244::")
        self.hosting.run("ip", "route", "add", "local", POOL, "dev", "lo")
        self.outside.run("ip", "route", "add", POOL, "via", "192.0.2.2")
        self.node.run("ip", "route", "add", POOL, "via", "198.51.100.2")
        self.pod.run("ip", "route", "add", "default", "via", "10.244.1.2")
        self.pod.run("ip", "-6", "route", "add", "default", "via", "fd00:244::2")

    def close(self) -> None:
        """End all of it."""
        for machine in self.machines:
            machine.close()


class Place(NamedTuple):
    """Location of a kube-apiserver: the name of its Service, the port, the advertised addresses."""

    name: str
    port: int
    advertised: tuple[str, ...]


class Cluster(Process):
    """The kube-apiserver of a hosted cluster, with an authority of its own for its clients."""

    def __init__(self, directory: Path, name: str, *advertised: str) -> None:
        self.name, self.advertised = name, advertised
        self.directory = directory / name
        self.directory.mkdir()
        self.authority = Authority(self.directory)
        names = [f"api.{name}.test", "kubernetes.default.svc", SERVICE_NAME]
        self._pair = self.authority.issue(
            "apiserver",
            *(x509.DNSName(hostname) for hostname in names),
            *(x509.IPAddress(ipaddress.ip_address(a)) for a in (*advertised, "127.0.0.1")),
        )
        self.user = f"{name}-admin"
        self.files = self.authority.issue_to(self.user, "system:masters")
        self.port = free_port()
        self.trust = ssl.create_default_context(cafile=str(self.authority.file))
        self.trust.load_cert_chain(*self.files)

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "gatehouse", "apiserver"),
            *(
                "--storage",
                str(self.directory / "storage"),
                "--bind-address",
                f"0.0.0.0:{self.port}",
            ),
            *("--tls-cert-file", str(self._pair[0]), "--tls-private-key-file", str(self._pair[1])),
            *("--client-ca-file", str(self.authority.file)),
        ]

    def client(self) -> kube.Client:
        """Return a client of the administrator that bypasses the gateways."""
        data = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "direct",
            "contexts": [{"name": "direct", "context": {"cluster": "direct", "user": "direct"}}],
            "clusters": [{
                "name": "direct",
                "cluster": {
                    "server": f"https://127.0.0.1:{self.port}",
                    "certificate-authority": str(self.authority.file),
                },
            }],
            "users": [{
                "name": "direct",
                "user": {
                    "client-certificate": str(self.files[0]), "client-key": str(self.files[1]),
                },
            }],
        }  # fmt: skip
        file = self.directory / "kubeconfig"
        file.write_text(json.dumps(data))
        return kube.Client.from_kubeconfig(file)

    def ready(self) -> bool:
        try:
            url = f"https://127.0.0.1:{self.port}/readyz"
            with urllib.request.urlopen(url, context=self.trust, timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def kubectl(self, server: str, files: tuple[Path, Path] | None = None) -> list[str]:
        """Return the words that run kubectl against a URL, as the cluster's administrator.

        ``files``: certificate and key of another user.
        """
        pair = files or self.files
        return [
            *("kubectl", "--kubeconfig", "/dev/null", "--server", server),
            *("--cache-dir", str(self.directory / "cache"), "--request-timeout", "5s"),
            *("--certificate-authority", str(self.authority.file)),
            *("--client-certificate", str(pair[0]), "--client-key", str(pair[1])),
        ]

    def user_seen(
        self,
        machine: Machine,
        server: str,
        resolv_conf: Path | None = None,
        files: tuple[Path, Path] | None = None,
    ) -> str:
        """Return the user that this kube-apiserver sees from a machine, or the error."""
        words = [*self.kubectl(server, files), "auth", "whoami", "-o", "json"]
        if resolv_conf is not None:
            words = resolving(resolv_conf, *words)
        done = subprocess.run(
            machine.enter(*words), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        if done.returncode:
            return f"failed: {done.stderr}"
        return str(json.loads(done.stdout)["status"]["userInfo"]["username"])


class NodeProxy:
    """`gatehouse node-proxy run` on a node."""

    def __init__(self, node: Machine, directory: Path) -> None:
        self._node, self._directory = node, directory
        self.log = directory / "node-proxy.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self, gateway: str, addresses: tuple[str, ...], *more: str, resolv_conf: Path | None = None
    ) -> None:
        """Start it, and wait until it is ready."""
        words = [
            *(sys.executable, "-m", "gatehouse", "node-proxy", "run", "--gateway", gateway),
            *(f"--address={address}" for address in addresses),
            # Not every kernel has dummy interfaces.
            *(
                "--interface-type",
                "bridge",
                "--cleanup",
                "--dir",
                str(self._directory / "run"),
                *more,
            ),
        ]
        if resolv_conf is not None:
            words = resolving(resolv_conf, *words)
        self.process = self._node.start(words, self.log)
        patience.wait_until(lambda: self.probe_response("/readyz") == "ok\n", self.log.read_text)

    def probe_response(self, path: str) -> str:
        """Return the response of the probe port."""
        code = "import sys, urllib.request as u; print(end=u.urlopen(sys.argv[1]).read().decode())"
        url = f"http://127.0.0.1:16910{path}"
        return self._node.run(sys.executable, "-c", code, url, check=False)

    def stop(self) -> None:
        """End it, and what it made."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(patience.SECONDS)
