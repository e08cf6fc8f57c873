"""Certificates and kubeconfigs of the cluster."""

from __future__ import annotations

from pathlib import Path

import yaml

from cluster import layout
from fakes.kube_apiserver import write_token_keys
from fakes.kube_test_pki import Authority

USERS = {
    "admin": ("admin", "system:masters"),
    "load-balancers": ("load-balancers", "system:masters"),
    "kube-router": ("kube-router", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
    **{node.name: (f"system:node:{node.name}", "system:nodes") for node in layout.NODES},
}
"""Kubeconfigs, by name: user and group."""

SERVER_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc.cluster.local",
    "localhost",
    layout.KUBERNETES_SERVICE,
    layout.CONTROL_PLANE.address,
)


def kubeconfig(name: str) -> Path:
    """Return the path of a kubeconfig."""
    return layout.PKI / f"{name}.kubeconfig"


def write() -> None:
    """Write the authorities, certificates, token keys and kubeconfigs of a new cluster."""
    layout.PKI.mkdir(parents=True, mode=0o700)
    authority, front_proxy = Authority(), Authority()
    _pair("ca", (authority.pem, authority.key))
    (layout.PKI / "front-proxy-ca.crt").write_bytes(front_proxy.pem)
    write_token_keys(layout.PKI)
    _pair(
        "apiserver",
        authority.issue("kube-apiserver", host="kubernetes.default.svc", more=SERVER_NAMES),
    )
    _pair("front-proxy", front_proxy.issue("front-proxy-client"))
    _pair("apiserver-kubelet", authority.issue("kube-apiserver-kubelet", "system:masters"))
    for name, (user, group) in USERS.items():
        _pair(name, authority.issue(user, group))
        kubeconfig(name).write_text(yaml.safe_dump(_kubeconfig(name)))


def _pair(name: str, pair: tuple[bytes, bytes]) -> None:
    certificate, key = pair
    (layout.PKI / f"{name}.crt").write_bytes(certificate)
    (layout.PKI / f"{name}.key").write_bytes(key)


def _kubeconfig(name: str) -> dict[str, object]:
    cluster = {"server": layout.SERVER, "certificate-authority": str(layout.PKI / "ca.crt")}
    user = {
        "client-certificate": str(layout.PKI / f"{name}.crt"),
        "client-key": str(layout.PKI / f"{name}.key"),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "cluster",
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "user"}}],
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
    }
