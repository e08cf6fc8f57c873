"""Rotation of the agent channel's certificate, and its effects on data planes."""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cluster import example, running
from cluster.conftest import NAMESPACE, leader, restart_leader
from cluster.running import wait_until
from cluster.traffic import requests_to
from gatehouse.standalone import pki

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SECRET = "gatehouse-channel"
LIFETIME = timedelta(seconds=60)
PROGRAM = "import ssl, sys; print(ssl.get_server_certificate((sys.argv[1], 8443)))"


def test_certificate_that_expires_is_rotated_and_no_request_is_lost(urls: tuple[str, ...]) -> None:
    with requests_to(*urls):
        expiry = datetime.now(UTC) + LIFETIME
        short = _short_lived_certificate(expiry)
        wait_until("the short-lived certificate is served", _serves, short)
        restart_leader()
        example.change_is_served(urls, "short")
        words = ("create", "job", "rotate", "--from=cronjob/gatehouse-certificates")
        running.run("kubectl", "-n", NAMESPACE, *words)
        wait_until("the certificate is rotated", lambda: _certificate() != short)
        wait_until("the new certificate is served", _serves, _certificate())
        time.sleep(max(0.0, (expiry - datetime.now(UTC)).total_seconds()))
        example.change_is_served(urls, "expired")
        restart_leader()
        example.change_is_served(urls, "rotated")
    running.run("kubectl", "-n", NAMESPACE, "delete", "job", "rotate")


def _short_lived_certificate(expiry: datetime) -> str:
    """Write a certificate of the channel's CA with this expiry into the Secret. Return it (PEM)."""
    with tempfile.TemporaryDirectory() as scratch:
        authority, leaf = (
            pki.KeyPair(Path(scratch) / f"{name}.crt", Path(scratch) / f"{name}.key")
            for name in ("ca", "tls")
        )
        data = running.kubectl_json("-n", NAMESPACE, "get", "secret", f"{SECRET}-ca")["data"]
        authority.cert.write_bytes(base64.b64decode(data["ca.crt"]))
        authority.key.write_bytes(base64.b64decode(data["ca.key"]))
        pki.issue(authority, pki.CHANNEL, leaf, expiry - pki.LEAF_LIFE)
        running.apply(json.dumps(_secret(data["ca.crt"], leaf)))
        return leaf.cert.read_text()


def _secret(ca: str, leaf: pki.KeyPair) -> dict[str, Any]:
    files = {"tls.crt": leaf.cert, "tls.key": leaf.key}
    data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "data": {"ca.crt": ca, **data},
    }


def _certificate() -> str:
    """Return the certificate in the Secret (PEM)."""
    data = running.kubectl_json("-n", NAMESPACE, "get", "secret", SECRET)["data"]
    return base64.b64decode(data["tls.crt"]).decode()


def _serves(certificate: str) -> bool:
    """Return whether agents get this certificate from the controller that leads."""
    pod = running.kubectl_json("-n", NAMESPACE, "get", "pod", leader())
    words = ("-c", PROGRAM, pod["status"]["podIP"])
    # Policies permit only data planes and the node of the Pod.
    served = running.run(sys.executable, *words, network=pod["spec"]["nodeName"])
    return served.strip() == certificate.strip()
