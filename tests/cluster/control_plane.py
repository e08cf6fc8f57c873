"""Programs of the control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import yaml

from cluster import layout
from cluster.certificates import kubeconfig
from cluster.layout import BINARIES, PKI, RUN

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class Program(NamedTuple):
    """A program that runs, and runs again if it ends, in a network namespace."""

    name: str
    network: str
    words: tuple[str, ...]


def control_plane() -> Iterator[Program]:
    """Write the audit policy. Yield the programs of the control plane."""
    policy = RUN / "audit-policy.yaml"
    policy.write_text(yaml.safe_dump(AUDIT_POLICY))
    for name, words in (
        ("etcd", _etcd()),
        ("kube-apiserver", (*_apiserver(), f"--audit-policy-file={policy}")),
        ("kube-controller-manager", _controller_manager()),
        ("kube-scheduler", _with_kubeconfig("kube-scheduler", "--leader-elect=false")),
    ):
        yield Program(name, layout.CONTROL_PLANE.name, words)


def _etcd() -> tuple[str, ...]:
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return (
        *("etcd", "--name=etcd", f"--data-dir={RUN / 'etcd'}", "--unsafe-no-fsync"),
        *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
        *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
        f"--initial-cluster=etcd={peer}",
    )


def _apiserver() -> tuple[str, ...]:
    return (
        str(BINARIES / "kube-apiserver"),
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={layout.CONTROL_PLANE.address}",
        "--secure-port=6443",
        f"--service-cluster-ip-range={layout.SERVICE_CIDR}",
        "--kubelet-preferred-address-types=InternalIP",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={PKI / 'ca.crt'}",
        *_pair("tls-cert-file", "tls-private-key-file", "apiserver"),
        *_pair("kubelet-client-certificate", "kubelet-client-key", "apiserver-kubelet"),
        *_pair("proxy-client-cert-file", "proxy-client-key-file", "front-proxy"),
        f"--requestheader-client-ca-file={PKI / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={PKI / 'tokens.pub'}",
        f"--service-account-signing-key-file={PKI / 'tokens.key'}",
        f"--audit-log-path={layout.AUDIT_LOG}",
    )


def _controller_manager() -> tuple[str, ...]:
    return _with_kubeconfig(
        "kube-controller-manager",
        "--leader-elect=false",
        "--use-service-account-credentials",
        "--allocate-node-cidrs=false",
        f"--cluster-cidr={layout.POD_CIDR}",
        "--controllers=*,-node-ipam-controller",
        f"--root-ca-file={PKI / 'ca.crt'}",
        f"--service-account-private-key-file={PKI / 'tokens.key'}",
        *_pair("cluster-signing-cert-file", "cluster-signing-key-file", "ca"),
    )


def _with_kubeconfig(name: str, *more: str) -> tuple[str, ...]:
    path = kubeconfig(name)
    prefixes = ("", "authentication-", "authorization-")
    options = (f"--{prefix}kubeconfig={path}" for prefix in prefixes)
    return (str(BINARIES / name), *options, *more)


def _pair(certificate: str, key: str, name: str) -> tuple[str, str]:
    return f"--{certificate}={PKI / name}.crt", f"--{key}={PKI / name}.key"
