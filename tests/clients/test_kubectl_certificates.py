"""Approval of CertificateSigningRequests, and who may approve and sign, by the real kubectl."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fakes.kubectls import Kubectl, table

pytestmark = pytest.mark.process

SIGNER = "example.com/clients"
REQUESTS = "certificatesigningrequests.certificates.k8s.io"


def request(name: str) -> dict[str, Any]:
    """Build a request for the certificate of a client."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signed = (
        x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    )
    pem = signed.public_bytes(serialization.Encoding.PEM)
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": SIGNER,
            "usages": ["client auth"],
        },
    }


def grant(kubectl: Kubectl, user: str, subresource: str) -> None:
    """Grant a user the right to write a subresource of requests."""
    verbs = "--verb=get,list,update,patch"
    kubectl("create", "clusterrole", user, verbs, f"--resource={REQUESTS}/{subresource},{REQUESTS}")
    kubectl("create", "clusterrolebinding", user, f"--clusterrole={user}", f"--user={user}")


def grant_signer(kubectl: Kubectl, user: str, verb: str, signer: str) -> None:
    """Grant a user a verb on a signer."""
    rule = {
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["signers"],
        "resourceNames": [signer],
        "verbs": [verb],
    }
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"{user}-signers"},
        "rules": [rule],
    }
    kubectl("create", "-f", "-", stdin=role)
    binding = f"{user}-signers"
    kubectl("create", "clusterrolebinding", binding, f"--clusterrole={binding}", f"--user={user}")


def condition(kubectl: Kubectl, name: str) -> str:
    return table(kubectl("get", "csr", name))[1][-1]


@pytest.fixture
def name() -> str:
    """Return a name that no other test uses: requests and roles have no namespace."""
    return f"one-{uuid.uuid4().hex[:8]}"


def test_certificate_is_approved_or_denied(kubectl: Kubectl, name: str) -> None:
    for metadata_name in (name, f"{name}-bad"):
        kubectl("create", "-f", "-", stdin=request(metadata_name))
        assert condition(kubectl, metadata_name) == "Pending"
    kubectl("certificate", "approve", name)
    kubectl("certificate", "deny", f"{name}-bad")
    assert condition(kubectl, name) == "Approved"
    assert condition(kubectl, f"{name}-bad") == "Denied"
    assert "already Approved" in kubectl.fails("certificate", "deny", name)


@pytest.mark.parametrize("signer", [SIGNER, "example.com/*"])
def test_approval_needs_right_on_signer(kubectl: Kubectl, name: str, signer: str) -> None:
    kubectl("create", "-f", "-", stdin=request(name))
    grant(kubectl, name, "approval")
    refused = kubectl.fails("certificate", "approve", name, f"--as={name}")
    assert f'user not permitted to approve requests with signerName "{SIGNER}"' in refused
    assert condition(kubectl, name) == "Pending"
    grant_signer(kubectl, name, "approve", signer)
    kubectl("certificate", "approve", name, f"--as={name}")
    assert condition(kubectl, name) == "Approved"


def test_signer_can_neither_approve_nor_sign_for_others(kubectl: Kubectl, name: str) -> None:
    """The right to write statuses of requests is no right to approve."""
    kubectl("create", "-f", "-", stdin=request(name))
    grant(kubectl, name, "status")
    grant_signer(kubectl, name, "sign", SIGNER)
    obj = kubectl.json("get", "csr", name)
    path = f"/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/status"
    write = ("replace", "--raw", path, f"--as={name}", "-f", "-")
    obj["status"] = {"conditions": [{"type": "Approved", "status": "True"}]}
    refused = kubectl.fails(*write, stdin=obj)
    assert 'updates may not add a condition of type "Approved"' in refused
    kubectl("delete", "clusterrolebinding", f"{name}-signers")
    obj["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    refused = kubectl.fails(*write, stdin=obj)
    assert f'user not permitted to sign requests with signerName "{SIGNER}"' in refused
