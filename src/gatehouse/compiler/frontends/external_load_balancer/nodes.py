"""Nodes that are servers, and those that are draining."""

from __future__ import annotations

import msgspec

from gatehouse.apis import external_services
from gatehouse.apis.external_load_balancers import Nodes
from gatehouse.apis.selectors import selector_matches
from gatehouse.compiler.frontends.external_load_balancer.addresses import placed_address
from gatehouse.compiler.frontends.external_load_balancer.findings import LoadBalancerFinding
from gatehouse.compiler.frontends.external_load_balancer.inputs import NODES_KEY
from gatehouse.compiler.frontends.external_load_balancer.sources import spec_of
from gatehouse.incremental.query import Ask, Key

CONTROL_PLANE = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
"""Kubernetes' label for Nodes that are excluded from external load balancers."""


class Member(msgspec.Struct, frozen=True):
    """An address of a Node that is a server."""

    node: str
    host: str
    """IP address; IPv6 in brackets."""
    family: str
    """``IPv4`` or ``IPv6``."""
    draining: bool = False


def pool(ask: Ask, balancer: Key) -> tuple[Member, ...]:
    """Return the Nodes that are servers of a load balancer, sorted by name.

    If no Node is ready, all count as ready: more likely the reports of readiness are wrong.
    """
    spec = ask(spec_of, balancer)
    if isinstance(spec, LoadBalancerFinding):
        return ()
    nodes = [
        (key[2], node)
        for key in ask.read(NODES_KEY)
        if isinstance(node := ask.read(key), external_services.Node) and _eligible(node, spec.nodes)
    ]
    any_ready = any(node.status.ready for _, node in nodes)
    members: list[Member] = []
    for name, node in nodes:
        treatments = {"Keep"}
        if any_ready and not node.status.ready:
            treatments.add(spec.nodes.not_ready_policy)
        if node.spec.unschedulable:
            treatments.add(spec.nodes.unschedulable_policy)
        if "Remove" not in treatments:
            members += _members(name, node, draining="Drain" in treatments)
    return tuple(members)


def _eligible(node: external_services.Node, policy: Nodes) -> bool:
    labels = node.metadata.labels
    if not policy.control_plane and any(label in labels for label in CONTROL_PLANE):
        return False
    # kubeadm sets the label on control-plane Nodes; it must not override spec.nodes.controlPlane.
    included = policy.control_plane and any(label in labels for label in CONTROL_PLANE)
    if EXCLUDED in labels and not included:
        return False
    return selector_matches(policy.selector, labels)


def _members(name: str, node: external_services.Node, *, draining: bool) -> list[Member]:
    members = []
    for address in node.status.addresses:
        if address.type == "InternalIP":
            placed = placed_address(address.address)
            if placed is not None:
                members.append(Member(name, *placed, draining))
    return members
