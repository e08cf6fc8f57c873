"""Keeping connection tracking away from the advertised addresses.

Connections to them never leave the node, so tracking them costs entries and protects nothing; an
entry that outlives its connection even breaks the next one. Untracked packets pass no rule for
established connections, so that they are accepted explicitly. Needs CAP_NET_ADMIN.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from gatehouse.nodeproxy.commands import CommandError, run
from gatehouse.nodeproxy.options import Address, Tracking

TABLE = "gatehouse-node-proxy"


class Rules(Protocol):
    """The rules of one kind of packet filter."""

    async def ensure(self) -> list[str]:
        """Have all rules in place; gives what had to be done. Raises CommandError."""

    async def remove(self) -> list[str]:
        """Remove all rules; gives what had to be done. Raises CommandError."""


def rules(kind: Tracking, addresses: Sequence[Address], port: int) -> Rules | None:
    """Give the rules of a kind; None for ``keep``. ``auto``: nftables where its command is.

    Raises CommandError if nothing can do it.
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
    """A table of our own, written as a whole whenever it is not as it should be."""

    def __init__(self, addresses: tuple[Address, ...], port: int) -> None:
        self._addresses = addresses
        self._port = port
        self._listed = ""
        """How the kernel's table was shown after it was written: versions of nft differ."""

    async def ensure(self) -> list[str]:
        """Have the table in place."""
        shown = await _shown()
        if shown and (shown == self._listed or _words(shown) == _words(self.table())):
            return []
        # Made if it is missing, removed, made anew: in one transaction.
        await run(
            "nft", "-f", "-", given=f"table inet {TABLE}\ndelete table inet {TABLE}\n{self.table()}"
        )
        self._listed = await _shown()
        return ["wrote the rules of nftables"]

    async def remove(self) -> list[str]:
        """Remove the table."""
        if not await _shown():
            return []
        await run("nft", "delete", "table", "inet", TABLE)
        return ["removed the rules of nftables"]

    def table(self) -> str:
        """Give the table in the words of ``nft``."""
        to = self._lines("d", "notrack")
        passing = self._lines("d", "accept")
        return (
            f"table inet {TABLE} {{\n"
            + _chain("prerouting", "prerouting", "raw", to)
            + _chain("leaving", "output", "raw", to + self._lines("s", "notrack"))
            + _chain("input", "input", "filter", passing)
            + _chain("output", "output", "filter", passing + self._lines("s", "accept"))
            + "}\n"
        )

    def _lines(self, side: Literal["d", "s"], verdict: str) -> str:
        families = {4: "ip", 6: "ip6"}
        port = f"tcp {side}port {self._port}"
        return "".join(
            f"    {families[each.version]} {side}addr {each} {port} {verdict}\n"
            for each in self._addresses
        )


def _chain(name: str, hook: str, priority: str, rules: str) -> str:
    head = f"type filter hook {hook} priority {priority}; policy accept;"
    return f"  chain {name} {{\n    {head}\n{rules}  }}\n"


def _words(text: str) -> list[str]:
    return text.split()


async def _shown() -> str:
    """Give the table as the kernel has it; empty if there is none."""
    tables = json.loads(await run("nft", "-json", "list", "tables"))["nftables"]
    present = {each["table"]["name"] for each in tables if "table" in each}
    return await run("nft", "list", "table", "inet", TABLE) if TABLE in present else ""


class Iptables(msgspec.Struct, frozen=True):
    """Rules among others', each looked for and put first."""

    addresses: tuple[Address, ...]
    port: int

    async def ensure(self) -> list[str]:
        """Have every rule in place."""
        done = []
        for address in self.addresses:
            for table, chain, *rule in self.rules(address):
                if not await _has(_command(address), table, chain, rule):
                    words = ("-t", table, "-I", chain, "1", *rule)
                    await run(_command(address), "-w", "5", *words)
                    done.append(f"added {' '.join(words)}")
        return done

    async def remove(self) -> list[str]:
        """Remove every rule, also where it stands twice."""
        done = []
        for address in self.addresses:
            for table, chain, *rule in self.rules(address):
                while await _has(_command(address), table, chain, rule):
                    words = ("-t", table, "-D", chain, *rule)
                    await run(_command(address), "-w", "5", *words)
                    done.append(f"removed {' '.join(words)}")
        return done

    def rules(self, address: Address) -> tuple[tuple[str, ...], ...]:
        """Give the rules of an address: table, chain, and the words of the rule."""
        to = ("-p", "tcp", "-d", str(address), "--dport", str(self.port))
        answers = ("-p", "tcp", "-s", str(address), "--sport", str(self.port))
        return (
            ("raw", "PREROUTING", *to, "-j", "NOTRACK"),
            ("raw", "OUTPUT", *to, "-j", "NOTRACK"),
            ("raw", "OUTPUT", *answers, "-j", "NOTRACK"),
            ("filter", "INPUT", *to, "-j", "ACCEPT"),
            ("filter", "OUTPUT", *to, "-j", "ACCEPT"),
            ("filter", "OUTPUT", *answers, "-j", "ACCEPT"),
        )


def _command(address: Address) -> str:
    return "iptables" if address.version == 4 else "ip6tables"


async def _has(command: str, table: str, chain: str, rule: Sequence[str]) -> bool:
    try:
        await run(command, "-w", "5", "-t", table, "-C", chain, *rule)
    except CommandError as error:
        if "does a matching rule exist" in str(error):
            return False
        raise
    return True
