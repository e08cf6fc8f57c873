"""Network namespaces of the nodes and of a client, joined by a bridge. Needs root."""

from __future__ import annotations

import subprocess

from cluster import layout


def ip(*words: str) -> None:
    """Run ``ip``."""
    subprocess.run(["ip", *words], check=True)


def enter(network: str, *words: str) -> list[str]:
    """Return a command that runs in a network namespace; "" is that of the bridge."""
    if not network:
        return list(words)
    return ["nsenter", f"--net={layout.NAMESPACES / network}", "--", *words]


def set_up() -> None:
    """Create the namespaces, and the routes between nodes, Pods, Services and the client."""
    ip("link", "set", "lo", "up")
    ip("link", "add", layout.BRIDGE, "type", "bridge")
    ip("addr", "add", f"{layout.BRIDGE_ADDRESS}/24", "dev", layout.BRIDGE)
    ip("link", "set", layout.BRIDGE, "up")
    _set("", "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=0")
    for node in layout.NODES:
        _attach(node.name, node.address)
        _set(node.name, "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")
        _set(node.name, "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
    _attach(layout.CLIENT, layout.CLIENT_ADDRESS)
    _route_by_connection(layout.CLIENT)
    first = layout.CONTROL_PLANE.address
    for network in ("", layout.CLIENT):
        route(network, layout.LOAD_BALANCERS, first)
        route(network, layout.SERVICE_CIDR, first)
    for node in layout.NODES:
        others = [other.name for other in layout.NODES if other is not node]
        for network in ("", layout.CLIENT, *others):
            route(network, node.pod_cidr, node.address)


def route(network: str, destination: str, via: str) -> None:
    """Set a route of a network namespace."""
    at = ("-n", network) if network else ()
    ip(*at, "route", "replace", destination, "via", via)


def _route_by_connection(network: str) -> None:
    """Route packets to load balancers by the mark of their connection: the number of a node."""
    at = ("-n", network)
    for node in layout.NODES:
        mark = str(node.number)
        ip(*at, "route", "add", layout.LOAD_BALANCERS, "via", node.address, "table", mark)
        ip(*at, "rule", "add", "fwmark", mark, "table", mark)
    _mark(network, "--append", layout.LOAD_BALANCERS, "-j", "CONNMARK", "--restore-mark")


def send_new_connections(network: str, destination: str, before: str | None, via: str) -> None:
    """Send connections that begin now to another node than ``before``, if there was one."""
    marks = {node.address: str(node.number) for node in layout.NODES}
    new = ("-m", "conntrack", "--ctstate", "NEW", "-j", "CONNMARK", "--set-mark")
    _mark(network, "--insert", destination, *new, marks[via])
    if before:
        _mark(network, "--delete", destination, *new, marks[before])


def _mark(network: str, action: str, destination: str, *words: str) -> None:
    rule = ("iptables", "-w", "-t", "mangle", action, "OUTPUT", "-d", destination, *words)
    subprocess.run(enter(network, *rule), check=True)


def _attach(network: str, address: str) -> None:
    ip("netns", "add", network)
    ip("link", "add", f"v-{network}", "type", "veth", "peer", "name", "eth0", "netns", network)
    ip("link", "set", f"v-{network}", "master", layout.BRIDGE, "up")
    ip("-n", network, "link", "set", "lo", "up")
    ip("-n", network, "link", "set", "eth0", "up")
    ip("-n", network, "addr", "add", f"{address}/24", "dev", "eth0")
    ip("-n", network, "route", "add", "default", "via", layout.BRIDGE_ADDRESS)


def _set(network: str, *settings: str) -> None:
    """Set kernel parameters. Those of bridges exist only where the kernel has the module."""
    for setting in settings:
        optional = setting.startswith("net.bridge.")
        words = enter(network, "sysctl", "-qw", setting)
        subprocess.run(words, check=not optional, stderr=subprocess.DEVNULL if optional else None)
