"""KubeGateway over an etcd of its own, as a process beside Gatehouse."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from fakes.authority import Authority
from fakes.loopback import free_port
from fakes.process import Process

VERSION = "ae98743"
_API = "/apis/proxy.kubegateway.io/v1alpha1/upstreamclusters"


class KubeGateway(Process):
    """One KubeGateway. Its own API permits everything to all clients."""

    def __init__(self, binary: Path, directory: Path, etcd: str) -> None:
        self.port, self._control_port = free_port(), free_port()
        self._binary, self._directory, self._etcd = binary, directory, etcd
        authority = Authority(directory, "kubegateway")
        self._certificate, self._key = authority.issue("kubegateway")
        # Its own clients get a certificate that it signs itself, in any case.
        self._trust = ssl.create_default_context()
        self._trust.check_hostname, self._trust.verify_mode = False, ssl.CERT_NONE

    def command(self) -> list[str]:
        return [
            *(str(self._binary), "--etcd-servers", f"http://{self._etcd}"),
            *("--etcd-prefix", "/kubegateway", "--authorization-mode", "AlwaysAllow"),
            *("--bind-address", "127.0.0.1", "--secure-port", str(self._control_port)),
            *("--proxy-secure-ports", str(self.port), "--cert-dir", str(self._directory)),
            *("--tls-cert-file", str(self._certificate)),
            *("--tls-private-key-file", str(self._key)),
        ]

    def ready(self) -> bool:
        try:
            return self._request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def create(self, cluster: dict[str, Any]) -> tuple[int, str]:
        """Create an UpstreamCluster. Return status and text of the response."""
        return self._request("POST", _API, json.dumps(cluster).encode())

    def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        url = f"https://127.0.0.1:{self._control_port}{path}"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self._trust, timeout=10) as response:
                return int(response.status), response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
