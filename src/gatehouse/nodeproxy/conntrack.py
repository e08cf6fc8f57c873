"""Firewall rules that disable connection tracking for the advertised addresses.

Connections to them never leave the node, so tracking them has a cost and no benefit. A tracking
entry that outlives its connection even breaks the next one. Rules for established connections do
not match untracked packets, so these packets are accepted explicitly. Needs CAP_NET_ADMIN.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from gatehouse.nodeproxy.commands import CommandError, run_command
from gatehouse.nodeproxy.options import IPAddress, Tracking

TABLE = "gatehouse-node-proxy"


class Rules(Protocol):
    """Rules of one kind of packet filter."""

    async def ensure(self) -> list[str]:
        """Install missing rules. Return what was changed. Raises CommandError."""

    async def remove(self) -> list[str]:
        """Remove all rules. Return what was changed. Raises CommandError."""


def conntrack_rules(kind: Tracking, addresses: Sequence[IPAddress], port: int) -> Rules | None:
    """Return the rules of a kind, or None for `keep`. `auto` prefers nftables if nft is installed.

    Raises CommandError if neither nft nor iptables is installed.
    """
    if kind == "keep":
        return None
    if kind == "auto":
        kind = "nftables" if shutil.which("nft") else "iptables"
        if kind == "iptables" and not shutil.which("iptables"):
            raise CommandError(
                "neither nft nor iptables is on PATH: install one, or pass --conntrack keep"
            )
    if kind == "nftables":
        return Nftables(tuple(addresses), port)
    return Iptables(tuple(addresses), port)


class Nftables:
    """A table owned by Gatehouse, replaced as a whole when it differs."""

    def __init__(self, addresses: tuple[IPAddress, ...], port: int) -> None:
        self._addresses = addresses
        self._port = port
        self._listed = ""
        """Output of nft for the table after it was written, which depends on the version of nft."""

    async def ensure(self) -> list[str]:
        """Write the table if it differs."""
        listed = await _list_table()
        if listed and (listed == self._listed or _words(listed) == _words(self.table())):
            return []
        # Create the table if it is missing, delete it, and create it again in one transaction.
        await run_command(
            "nft", "-f", "-", stdin=f"table inet {TABLE}\ndelete table inet {TABLE}\n{self.table()}"
        )
        self._listed = await _list_table()
        return ["wrote nftables rules"]

    async def remove(self) -> list[str]:
        """Remove the table."""
        if not await _list_table():
            return []
        await run_command("nft", "delete", "table", "inet", TABLE)
        return ["removed nftables rules"]

    def table(self) -> str:
        """Return the table in the syntax of `nft`."""
        to = self._lines("d", "notrack")
        accept = self._lines("d", "accept")
        return (
            f"table inet {TABLE} {{\n"
            + _chain("prerouting", "prerouting", "raw", to)
            + _chain("leaving", "output", "raw", to + self._lines("s", "notrack"))
            + _chain("input", "input", "filter", accept)
            + _chain("output", "output", "filter", accept + self._lines("s", "accept"))
            + "}\n"
        )

    def _lines(self, side: Literal["d", "s"], verdict: str) -> str:
        families = {4: "ip", 6: "ip6"}
        port = f"tcp {side}port {self._port}"
        return "".join(
            f"    {families[address.version]} {side}addr {address} {port} {verdict}\n"
            for address in self._addresses
        )


def _chain(name: str, hook: str, priority: str, rules: str) -> str:
    head = f"type filter hook {hook} priority {priority}; policy accept;"
    return f"  chain {name} {{\n    {head}\n{rules}  }}\n"


def _words(text: str) -> list[str]:
    return text.split()


async def _list_table() -> str:
    """Return the table as listed by the kernel. Empty if it does not exist."""
    tables = json.loads(await run_command("nft", "-json", "list", "tables"))["nftables"]
    present = {table["table"]["name"] for table in tables if "table" in table}
    return await run_command("nft", "list", "table", "inet", TABLE) if TABLE in present else ""


class Iptables(msgspec.Struct, frozen=True):
    """Rules in shared chains. Missing ones are inserted at the top."""

    addresses: tuple[IPAddress, ...]
    port: int

    async def ensure(self) -> list[str]:
        """Insert missing rules."""
        changes = []
        for address in self.addresses:
            for table, chain, *rule in self.rules(address):
                if not await _has(_command(address), table, chain, rule):
                    words = ("-t", table, "-I", chain, "1", *rule)
                    await run_command(_command(address), "-w", "5", *words)
                    changes.append(f"added {' '.join(words)}")
        return changes

    async def remove(self) -> list[str]:
        """Remove all rules, including duplicates."""
        changes = []
        for address in self.addresses:
            for table, chain, *rule in self.rules(address):
                while await _has(_command(address), table, chain, rule):
                    words = ("-t", table, "-D", chain, *rule)
                    await run_command(_command(address), "-w", "5", *words)
                    changes.append(f"removed {' '.join(words)}")
        return changes

    def rules(self, address: IPAddress) -> tuple[tuple[str, ...], ...]:
        """Return the rules of an address: table, chain, and arguments of the rule."""
        to = ("-p", "tcp", "-d", str(address), "--dport", str(self.port))
        responses = ("-p", "tcp", "-s", str(address), "--sport", str(self.port))
        return (
            ("raw", "PREROUTING", *to, "-j", "NOTRACK"),
            ("raw", "OUTPUT", *to, "-j", "NOTRACK"),
            ("raw", "OUTPUT", *responses, "-j", "NOTRACK"),
            ("filter", "INPUT", *to, "-j", "ACCEPT"),
            ("filter", "OUTPUT", *to, "-j", "ACCEPT"),
            ("filter", "OUTPUT", *responses, "-j", "ACCEPT"),
        )


def _command(address: IPAddress) -> str:
    return "iptables" if address.version == 4 else "ip6tables"


async def _has(command: str, table: str, chain: str, rule: Sequence[str]) -> bool:
    try:
        await run_command(command, "-w", "5", "-t", table, "-C", chain, *rule)
    except CommandError as error:
        if "does a matching rule exist" in str(error):
            return False
        raise
    return True
