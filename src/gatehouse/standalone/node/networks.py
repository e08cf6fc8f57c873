"""A network of its own for each Pod: a namespace, joined to a bridge on this machine.

Needs root and the command ``ip`` (iproute2). Names follow from what they belong to, so that
everything is found again, and nothing is made twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
import shutil
from collections.abc import Collection
from pathlib import Path

NAMESPACES = Path("/run/netns")


class NetworkError(Exception):
    """A network cannot be made; the message holds the words of ``ip``."""


class Networks:
    """The networks of this node's Pods, all of one range of addresses."""

    def __init__(self, cidr: str) -> None:
        self._range = ipaddress.IPv4Network(cidr)
        digest = hashlib.sha256(cidr.encode()).hexdigest()[:8]
        self._bridge = f"gh{digest}"
        self._prefix = f"gh-{digest}-"
        self._ready = False

    @property
    def trouble(self) -> str:
        """Why this machine cannot give Pods networks; empty if it can."""
        if os.geteuid() != 0:
            return "networks of their own need root"
        return "" if shutil.which("ip") else "the command ip (package iproute2) is missing"

    def name(self, uid: str) -> str:
        """Give the namespace of a Pod."""
        return self._prefix + hashlib.sha256(uid.encode()).hexdigest()[:8]

    def enter(self, uid: str) -> tuple[str, ...]:
        """Give the words that start a command in a Pod's network."""
        return ("nsenter", f"--net={NAMESPACES / self.name(uid)}", "--")

    def choose(self, uid: str, taken: Collection[str]) -> str:
        """Give a free address for a Pod; the same one as long as it is free."""
        # Without the network's own address, the bridge's, and the broadcast one.
        usable = self._range.num_addresses - 3
        start = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8], "big") % usable
        for offset in range(usable):
            address = str(self._range.network_address + 2 + (start + offset) % usable)
            if address not in taken:
                return address
        raise NetworkError(f"no address is left in {self._range}")

    async def make(self, uid: str, address: str) -> None:
        """Make a Pod's network, unless it is there."""
        await self._make_bridge()
        name = self.name(uid)
        if (NAMESPACES / name).exists():
            return
        length, gateway = self._range.prefixlen, self._range.network_address + 1
        outside = f"v{name.rpartition('-')[2]}"
        await _ip("netns", "add", name)
        try:
            await _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
            await _ip("link", "set", outside, "master", self._bridge, "up")
            await _ip("-n", name, "link", "set", "lo", "up")
            await _ip("-n", name, "link", "set", "eth0", "address", _hardware(address))
            await _ip("-n", name, "addr", "add", f"{address}/{length}", "dev", "eth0")
            await _ip("-n", name, "link", "set", "eth0", "up")
            await _ip("-n", name, "route", "add", "default", "via", str(gateway))
        except NetworkError:
            await self.remove(uid)
            raise

    async def remove(self, uid: str) -> None:
        """Remove a Pod's network; its half of the wire goes with it."""
        name = self.name(uid)
        if (NAMESPACES / name).exists():
            await _ip("netns", "del", name)

    async def retain(self, uids: Collection[str]) -> None:
        """Remove the networks of all Pods but these."""
        kept = {self.name(uid) for uid in uids}
        for name in self._present():
            if name not in kept:
                await _ip("netns", "del", name)

    async def close(self) -> None:
        """Remove the bridge, if nothing uses it any more."""
        if self._ready and not self._present():
            await _ip("link", "del", self._bridge)
            self._ready = False

    def _present(self) -> list[str]:
        return [path.name for path in NAMESPACES.glob(f"{self._prefix}*")]

    def _has_bridge(self) -> bool:
        return Path(f"/sys/class/net/{self._bridge}").exists()

    async def _make_bridge(self) -> None:
        if self._ready:
            return
        if not self._has_bridge():
            gateway = self._range.network_address + 1
            await _ip("link", "add", self._bridge, "type", "bridge")
            await _ip("addr", "add", f"{gateway}/{self._range.prefixlen}", "dev", self._bridge)
        await _ip("link", "set", self._bridge, "up")
        self._ready = True


def _hardware(address: str) -> str:
    """Give the hardware address that belongs to an address, so that nobody remembers another."""
    return ":".join(f"{byte:02x}" for byte in (0x0A, 0x58, *ipaddress.IPv4Address(address).packed))


async def _ip(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "ip", *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    if process.returncode:
        raise NetworkError(f"ip {' '.join(words)}: {said.decode(errors='replace').strip()}")
