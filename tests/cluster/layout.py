"""Directories and addresses of the cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
HOME = Path(os.environ.get("GATEHOUSE_CLUSTER", ROOT / ".cache" / "cluster"))
"""Everything that the cluster writes, and what it keeps for its next start."""

BINARIES = HOME / "bin"
IMAGES = HOME / "images"
RUN = HOME / "run"
"""State of the running cluster."""

PKI = RUN / "pki"
LOGS = RUN / "logs"
AUDIT_LOG = RUN / "audit.log"
NAMESPACES = Path("/run/netns")
"""Network namespaces, in the mount namespace of the cluster."""


class Node(NamedTuple):
    """A node: its name, the last byte of its address, and the third of its Pods' addresses."""

    name: str
    number: int
    pods: int

    @property
    def address(self) -> str:
        return f"172.30.0.{self.number}"

    @property
    def pod_cidr(self) -> str:
        return f"10.244.{self.pods}.0/24"


NODES = (Node("node-1", 2, 1), Node("node-2", 3, 2))
CONTROL_PLANE = NODES[0]
"""The node whose network has the control plane."""

CLIENT, CLIENT_ADDRESS = "client", "172.30.0.9"
"""Network of a client outside of the cluster."""

BRIDGE, BRIDGE_ADDRESS = "br0", "172.30.0.1"
SERVICE_CIDR, POD_CIDR = "10.96.0.0/16", "10.244.0.0/16"
KUBERNETES_SERVICE, DNS_SERVICE = "10.96.0.1", "10.96.0.10"
LOAD_BALANCERS = "172.31.0.0/24"
SERVER = f"https://{CONTROL_PLANE.address}:6443"
