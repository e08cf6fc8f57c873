"""Programs of a node, with their configuration: containerd, kubelet, kube-proxy, kube-router."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cluster import layout
from cluster.binaries import PLUGIN_DIRECTORY
from cluster.certificates import kubeconfig
from cluster.control_plane import Program
from cluster.layout import BINARIES, LOGS, PKI, RUN, Node

CGROUPS = Path("/sys/fs/cgroup")
PAUSE_IMAGE = "gatehouse.test/pause:1"

CONTAINERD = """
version = 2
root = "{directory}/containerd"
state = "/run/containerd-{name}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""


def socket(node: Node) -> str:
    """Return the path of the socket of a node's containerd."""
    return f"/run/containerd-{node.name}/containerd.sock"


def programs(node: Node) -> Iterator[Program]:
    """Write the configuration of a node. Yield its programs."""
    directory = RUN / node.name
    (directory / "cni").mkdir(parents=True, exist_ok=True)
    containerd = directory / "containerd.toml"
    containerd.write_text(
        CONTAINERD.format(
            directory=directory,
            name=node.name,
            socket=socket(node),
            pause=PAUSE_IMAGE,
            plugins=PLUGIN_DIRECTORY,
        )
    )
    (directory / "cni" / "10-pods.conflist").write_text(json.dumps(_pod_network(node, directory)))
    kubelet, proxy = directory / "kubelet.yaml", directory / "kube-proxy.yaml"
    kubelet.write_text(yaml.safe_dump(_kubelet(node, directory)))
    proxy.write_text(yaml.safe_dump(_proxy(node)))
    yield Program(f"{node.name}-containerd", node.name, ("containerd", "-c", str(containerd)))
    yield Program(
        f"{node.name}-kubelet",
        node.name,
        (
            *(str(BINARIES / "kubelet"), f"--config={kubelet}"),
            *(f"--kubeconfig={kubeconfig(node.name)}", f"--hostname-override={node.name}"),
            *(f"--root-dir={directory / 'kubelet'}", f"--cert-dir={directory / 'kubelet-pki'}"),
            f"--node-ip={node.address}",
        ),
    )
    yield Program(
        f"{node.name}-kube-proxy", node.name, (str(BINARIES / "kube-proxy"), f"--config={proxy}")
    )
    yield Program(f"{node.name}-kube-router", node.name, _policies(node))


def _policies(node: Node) -> tuple[str, ...]:
    """Return the command that enforces NetworkPolicies on a node, and does nothing else."""
    return (
        *(str(BINARIES / "kube-router"), f"--kubeconfig={kubeconfig('kube-router')}"),
        *(f"--hostname-override={node.name}", f"--service-cluster-ip-range={layout.SERVICE_CIDR}"),
        *("--run-firewall", "--run-router=false", "--run-service-proxy=false"),
        "--health-port=0",
    )


def create_cgroup(node: Node) -> None:
    """Create the cgroup of a node's Pods in each hierarchy."""
    for hierarchy in _hierarchies():
        own = hierarchy / node.name
        own.mkdir(exist_ok=True)
        # A group of this controller takes no process before it has both.
        for name in ("cpuset.cpus", "cpuset.mems"):
            if hierarchy.name == "cpuset":
                (own / name).write_text((hierarchy / name).read_text())


def remove_cgroups() -> None:
    """Remove the cgroups of all nodes, whose processes have ended."""
    for hierarchy in _hierarchies():
        for node in layout.NODES:
            if (hierarchy / node.name).exists():
                for path in (*sorted((hierarchy / node.name).rglob("*/"), reverse=True),):
                    path.rmdir()
                (hierarchy / node.name).rmdir()


def _hierarchies() -> list[Path]:
    """Return the mounted hierarchies: one with version 2 of cgroups, else one per controller."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists()]


def _pod_network(node: Node, directory: Path) -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "dataDir": str(directory / "addresses"),
        "ranges": [[{"subnet": node.pod_cidr}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = [bridge | {"ipMasq": False, "ipam": addresses}, ports]
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}


def _kubelet(node: Node, directory: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failSwapOn": False,
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.name}",
        "containerRuntimeEndpoint": f"unix://{socket(node)}",
        "clusterDNS": [layout.DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "resolvConf": str(RUN / "resolv.conf"),
        "podLogsDir": str(LOGS / f"{node.name}-pods"),
        "volumePluginDir": str(directory / "plugins"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(PKI / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "seccompDefault": True,
        # How soon changed Secrets are in the files of Pods. The default is a minute.
        "syncFrequency": "5s",
        "maxPods": 200,
    }


def _proxy(node: Node) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": layout.POD_CIDR,
        "hostnameOverride": node.name,
        "clientConnection": {"kubeconfig": str(kubeconfig("kube-proxy"))},
        "conntrack": {"maxPerCore": 0, "min": 0},
    }
