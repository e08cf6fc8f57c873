"""The node proxy on a node of its own: real interfaces, real rules, real HAProxy and NGINX.

A bridge without ports stands for the dummy interface, which not every kernel has.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fakes import patience
from fakes.machines import CUT, POSSIBLE, Machine, join

pytestmark = pytest.mark.skipif(not POSSIBLE, reason=CUT)

ENVOY = Path(__file__).parents[2] / ".venv/bin/envoy"
GATEWAY = Path(__file__).with_name("gateway.py")
FOUR, SIX = "10.1.2.3", "fd00::3"

PROXIES = [
    "nginx",
    pytest.param(
        "haproxy", marks=pytest.mark.skipif(not shutil.which("haproxy"), reason="no haproxy")
    ),
]
FILTERS = [
    pytest.param(kind, marks=pytest.mark.skipif(not shutil.which(command), reason=f"no {command}"))
    for kind, command in (("nftables", "nft"), ("iptables", "iptables"))
]

SAY = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as s:
    s.settimeout(5)
    s.sendall(b"hello")
    got = b""
    while not got.endswith(b"hello"):
        more = s.recv(4096)
        if not more:
            break
        got += more
print(got.decode())
"""

GET = """
import socket, sys
with socket.create_connection(("127.0.0.1", 16910)) as s:
    s.sendall(f"GET {sys.argv[1]} HTTP/1.0\\r\\n\\r\\n".encode())
    print(end=s.makefile().read().partition("\\n\\n")[2])
"""

HOLD = """
import socket, sys
with socket.create_connection((sys.argv[1], 443), 5) as s:
    s.settimeout(60)
    print(s.recv(4096).decode(), flush=True)
    while True:
        sys.stdin.readline()
        s.sendall(b"still")
        print(s.recv(4096).decode(), flush=True)
"""


class Node:
    """A node with a node proxy, connected to a gateway."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.machine, self.hosting = Machine("node"), Machine("host")
        join(self.machine, self.hosting)
        self.hosting.start([sys.executable, str(GATEWAY), "8443"], directory / "gateway.log")
        self.log = directory / "node-proxy.log"
        self.process: subprocess.Popen[bytes] | None = None

    def flags(self, *more: str) -> list[str]:
        return [
            *(f"--address={address}" for address in (FOUR, SIX)),
            *(
                "--gateway",
                "192.0.2.2:8443",
                "--interface-type",
                "bridge",
                "--check-interval",
                "30",
            ),
            *("--dir", str(self.directory / "run"), *more),
        ]

    def command(self, verb: str, *more: str) -> list[str]:
        return [sys.executable, "-m", "gatehouse", "node-proxy", verb, *self.flags(*more)]

    def once(self, verb: str, *more: str) -> str:
        return self.machine.run(*self.command(verb, *more))

    def start(self, *more: str) -> None:
        self.process = self.machine.start(self.command("run", *more), self.log)
        self.until(lambda: self.asked("/readyz") == "ok\n", "ready")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(patience.SECONDS)

    def asked(self, path: str) -> str:
        """Return the response of a health endpoint."""
        return self.machine.run(sys.executable, "-I", "-S", "-c", GET, path, check=False)

    def figure(self, name: str) -> float:
        for line in self.asked("/metrics").splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(f"no {name}")

    def said(self, address: str) -> list[str]:
        """Connect from the node.

        Return the fields of the PROXY header that the gateway received.
        """
        return self.machine.python(SAY, address, "443").split()

    def addresses(self) -> dict[str, set[str]]:
        return {
            link["ifname"]: {address["local"] for address in link.get("addr_info", ())}
            for link in self.machine.json("ip", "-j", "addr")
            if "ifname" in link
        }

    def until(self, holds: Callable[[], bool], what: str) -> None:
        patience.wait_until(holds, lambda: f"not {what}: {self.log.read_text()}")

    def close(self) -> None:
        self.machine.close()
        self.hosting.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    started_node = Node(tmp_path)
    yield started_node
    started_node.close()


@pytest.mark.parametrize("proxy", PROXIES)
def test_pods_reach_gateway_by_advertised_addresses(node: Node, proxy: str) -> None:
    node.start("--proxy", proxy)
    version = "v2" if proxy == "haproxy" else "v1"
    output = node.said(FOUR)
    assert output[0] == version
    assert output[2:] == [FOUR, "443", "hello"]
    output = node.said(SIX)
    assert output[0] == version
    assert output[2:] == [SIX, "443", "hello"]
    assert node.figure("gatehouse_node_proxy_configured") == 1
    assert node.figure("gatehouse_node_proxy_proxy_up") == 1


@pytest.mark.parametrize("destination", ["", "outbound|443||kube-apiserver.a.svc.cluster.local"])
def test_envoy_opens_tunnels(node: Node, destination: str) -> None:
    flags = ["--destination", destination] if destination else []
    node.start("--transport", "connect", "--proxy-path", str(ENVOY), *flags)
    for address, target in ((FOUR, f"{FOUR}:443"), (SIX, f"[{SIX}]:443")):
        assert node.said(address) == ["connect", target, destination or "-", "hello"]
    # A change of the transport replaces the proxy.
    node.stop(signal.SIGKILL)
    node.start("--proxy", "haproxy" if shutil.which("haproxy") else "nginx")
    node.until(lambda: node.said(FOUR)[0].startswith("v"), "replaced")


@pytest.mark.parametrize("kind", FILTERS)
def test_connections_to_advertised_address_are_not_tracked(node: Node, kind: str) -> None:
    # With a rule that needs tracking the kernel tracks all connections without a notrack rule.
    node.machine.run("nft", "add", "table", "inet", "other")
    node.machine.run(
        *("nft", "add", "chain", "inet", "other", "seen"),
        "{ type filter hook input priority 10; policy accept; }",
    )
    node.machine.run(
        *["nft", "add", "rule", "inet", "other", "seen", "ct", "state", "established", "accept"]
    )
    node.start("--conntrack", kind)
    for address in (FOUR, SIX):
        assert node.said(address)[2] == address
    tracked = [
        line
        for family in ("ipv4", "ipv6")
        for line in node.machine.run("conntrack", "-L", "-f", family, check=False).splitlines()
    ]
    assert any("192.0.2.2" in line for line in tracked), "nothing is tracked at all"
    assert not [line for line in tracked if FOUR in line or SIX in line]


@pytest.mark.parametrize("kind", FILTERS)
def test_removed_network_configuration_is_restored(node: Node, kind: str) -> None:
    node.start("--conntrack", kind, "--check-interval", "1")
    node.machine.run("ip", "addr", "del", f"{FOUR}/32", "dev", "gatehouse")
    node.until(lambda: FOUR in node.addresses()["gatehouse"], "healed")
    node.until(lambda: node.figure("gatehouse_node_proxy_repairs_total") >= 1, "counted")
    node.machine.run("ip", "link", "del", "gatehouse")
    node.until(lambda: {FOUR, SIX} <= node.addresses().get("gatehouse", set()), "healed")
    assert node.said(FOUR)[2] == FOUR
    if kind == "nftables":
        node.machine.run("nft", "flush", "chain", "inet", "gatehouse-node-proxy", "leaving")
        command_line = ["nft", "list", "chain", "inet", "gatehouse-node-proxy", "leaving"]
        node.until(lambda: "notrack" in node.machine.run(*command_line), "healed")
    else:
        for command in ("iptables", "ip6tables"):
            node.machine.run(command, "-t", "raw", "-F")
            command_line = [command, "-t", "raw", "-S", "OUTPUT"]
            node.until(
                lambda command_line=command_line: (
                    node.machine.run(*command_line).count("-j CT --notrack") == 2  # type: ignore[misc]
                    or node.machine.run(*command_line).count("NOTRACK") == 2
                ),
                "healed",
            )
    node.until(lambda: node.figure("gatehouse_node_proxy_repairs_total") >= 2, "counted")


def test_address_is_moved_from_other_interface(node: Node) -> None:
    node.machine.run("ip", "addr", "add", f"{FOUR}/32", "dev", "lo")
    printed = node.once("setup")
    assert f"removed {FOUR} from lo" in printed
    assert FOUR not in node.addresses()["lo"]
    assert {FOUR, SIX} <= node.addresses()["gatehouse"]


@pytest.mark.parametrize("kind", FILTERS)
def test_setup_is_idempotent_and_cleanup_removes_everything(node: Node, kind: str) -> None:
    assert "created interface gatehouse" in node.once("setup", "--conntrack", kind)
    assert node.once("setup", "--conntrack", kind) == "The node is already configured.\n"
    assert "removed interface gatehouse" in node.once("cleanup", "--conntrack", kind)
    assert "gatehouse" not in node.addresses()
    for words in ("nft list ruleset", "iptables -t raw -S", "ip6tables -t raw -S"):
        assert FOUR not in node.machine.run(*words.split())
        assert SIX not in node.machine.run(*words.split())
    assert node.once("cleanup", "--conntrack", kind) == "The node has no configuration to remove.\n"


def test_foreign_interface_is_not_changed(node: Node) -> None:
    node.machine.run("ip", "link", "add", "gatehouse", "type", "veth", "peer", "name", "other")
    done = subprocess.run(
        node.machine.enter(*node.command("run")), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "interface gatehouse has kind veth" in done.stderr
    assert FOUR not in node.addresses()["gatehouse"]


@pytest.mark.parametrize("proxy", PROXIES)
def test_killed_proxy_is_restarted(node: Node, proxy: str) -> None:
    node.start("--proxy", proxy)
    node.machine.run("pkill", "-9", "--ns", str(_pid(node)), "--nslist", "net", proxy)
    node.until(lambda: node.figure("gatehouse_node_proxy_proxy_restarts_total") == 1, "restarted")
    node.until(lambda: node.asked("/readyz") == "ok\n", "ready")
    node.until(
        lambda: FOUR in node.machine.run(sys.executable, "-c", SAY, FOUR, "443", check=False),
        "served",
    )


@pytest.mark.parametrize("proxy", PROXIES)
def test_connections_survive_node_proxy_kill_and_restart(node: Node, proxy: str) -> None:
    node.start("--proxy", proxy)
    with subprocess.Popen(
        node.machine.enter(sys.executable, "-c", HOLD, FOUR),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as popen:
        assert popen.stdin
        assert popen.stdout
        assert FOUR in popen.stdout.readline()
        node.stop(signal.SIGKILL)
        node.start("--proxy", proxy)
        assert "proxy adopted" in node.log.read_text()
        popen.stdout.readline()
        popen.stdin.write("\n")
        popen.stdin.flush()
        assert "still" in popen.stdout.readline()
        assert node.figure("gatehouse_node_proxy_connections") >= 1
        popen.kill()


@pytest.mark.parametrize("proxy", PROXIES)
def test_shutdown_stops_proxy_and_cleanup_removes_everything(node: Node, proxy: str) -> None:
    node.start("--proxy", proxy, "--cleanup")
    assert node.stop() == 0
    assert "gatehouse" not in node.addresses()
    left = subprocess.run(
        ["ip", "netns", "pids", node.machine.name], capture_output=True, text=True, check=True
    )
    assert left.stdout == ""


def _pid(node: Node) -> int:
    result = subprocess.run(
        ["ip", "netns", "pids", node.machine.name], capture_output=True, text=True, check=True
    )
    return int(result.stdout.split()[0])
