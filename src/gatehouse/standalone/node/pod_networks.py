"""A network of its own for each Pod: a namespace, joined to a bridge on this machine.

Needs root and the command ``ip`` (iproute2). Names follow from what they belong to, so that
everything is found again, and nothing is made twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import json
import os
import shutil
from collections.abc import Collection
from pathlib import Path

NAMESPACES, LINKS = Path("/run/netns"), Path("/sys/class/net")

_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
"""Needed for wires and for namespaces; root of a container may be without them."""


class NetworkError(Exception):
    """A network cannot be made; the message holds the words of ``ip``."""


class PodNetworks:
    """The networks of this node's Pods, all of one range of addresses."""

    def __init__(self, cidr: str) -> None:
        self._range = ipaddress.IPv4Network(cidr)
        digest = hashlib.sha256(cidr.encode()).hexdigest()[:8]
        self.bridge = f"gh{digest}"
        """The bridge that all wires end at; it has the first address of the range."""
        self._prefix = f"gh-{digest}-"
        self._ready = False
        self._making = asyncio.Lock()

    @property
    def trouble(self) -> str:
        """Why this machine cannot give Pods networks; empty if it can."""
        if os.geteuid() != 0:
            return "networks of their own need root"
        lacking = _lacking(Path("/proc/self/status").read_text())
        if lacking:
            return f"networks of their own need {' and '.join(lacking)}"
        return "" if shutil.which("ip") else "the command ip (package iproute2) is missing"

    def name(self, uid: str) -> str:
        """Give the namespace of a Pod."""
        return self._prefix + hashlib.sha256(uid.encode()).hexdigest()[:8]

    def enter(self, uid: str) -> tuple[str, ...]:
        """Give the words that start a command in a Pod's network."""
        return ("nsenter", f"--net={NAMESPACES / self.name(uid)}", "--")

    def contains(self, address: str) -> bool:
        """Whether an address is one of this network's."""
        try:
            return ipaddress.ip_address(address) in self._range
        except ValueError:
            return False

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

    async def held(self, uid: str) -> str:
        """Give the address of a Pod's network; empty if there is none, or one half made."""
        name = self.name(uid)
        if not (NAMESPACES / name).exists():
            return ""
        try:
            # The route is made last: with it the network is whole.
            routes = json.loads(await _ip("-n", name, "-j", "route", "show", "default") or "[]")
            links = json.loads(await _ip("-n", name, "-j", "-4", "addr", "show", "eth0") or "[]")
        except NetworkError:
            return ""
        found = [address["local"] for link in links for address in link.get("addr_info", ())]
        return str(found[0]) if routes and found else ""

    async def prepare(self) -> None:
        """Make the bridge, unless it is there. Raises NetworkError."""
        async with self._making:
            if self._ready:
                return
            if not (LINKS / self.bridge).exists():
                await _ip("link", "add", self.bridge, "type", "bridge")
            gateway = self._range.network_address + 1
            await _ip("addr", "replace", f"{gateway}/{self._range.prefixlen}", "dev", self.bridge)
            await _ip("link", "set", self.bridge, "up")
            self._ready = True

    async def make(self, uid: str, address: str) -> None:
        """Make a Pod's network, unless it is there; what a killed node left half made is redone."""
        await self.prepare()
        outside = self._outside(uid)
        if await self.held(uid) == address:
            # Its bridge may be another one by now.
            await _ip("link", "set", outside, "master", self.bridge, "up")
            return
        await self.remove(uid)
        name = self.name(uid)
        length, gateway = self._range.prefixlen, self._range.network_address + 1
        try:
            await _ip("netns", "add", name)
            await _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
            await _ip("link", "set", outside, "master", self.bridge, "up")
            await _ip("-n", name, "link", "set", "lo", "up")
            await _ip("-n", name, "link", "set", "eth0", "address", _hardware(address))
            await _ip("-n", name, "addr", "add", f"{address}/{length}", "dev", "eth0")
            await _ip("-n", name, "link", "set", "eth0", "up")
            await _ip("-n", name, "route", "add", "default", "via", str(gateway))
        except NetworkError:
            with contextlib.suppress(NetworkError):
                await self.remove(uid)
            raise

    async def remove(self, uid: str) -> None:
        """Remove a Pod's network, and the wire to it."""
        outside = self._outside(uid)
        if (LINKS / outside).exists():
            # Not left to the namespace, which lasts as long as any process in it.
            with contextlib.suppress(NetworkError):
                await _ip("link", "del", outside)
        if (NAMESPACES / self.name(uid)).exists():
            await _ip("netns", "del", self.name(uid))

    async def retain(self, uids: Collection[str]) -> None:
        """Remove the networks of all Pods but these."""
        kept = {self.name(uid) for uid in uids}
        for name in self._present():
            if name not in kept:
                await _ip("netns", "del", name)

    async def close(self) -> None:
        """Remove the bridge, if nothing uses it any more."""
        if self._ready and not self._present():
            await _ip("link", "del", self.bridge)
            self._ready = False

    def _present(self) -> list[str]:
        return [path.name for path in NAMESPACES.glob(f"{self._prefix}*")]

    def _outside(self, uid: str) -> str:
        """Give the name of a wire's end on this machine."""
        return f"v{self.name(uid).rpartition('-')[2]}"


def _hardware(address: str) -> str:
    """Give the hardware address that belongs to an address, so that nobody remembers another."""
    return ":".join(f"{byte:02x}" for byte in (0x0A, 0x58, *ipaddress.IPv4Address(address).packed))


def _lacking(status: str) -> list[str]:
    """Give the capabilities that a process lacks whose ``/proc/<pid>/status`` this is."""
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), "")
    held = int(line.partition(":")[2] or "0", 16)
    return [name for name, bit in _CAPABILITIES.items() if not held >> bit & 1]


async def _ip(*words: str) -> str:
    """Run ``ip``; gives what it printed. Raises NetworkError."""
    try:
        process = await asyncio.create_subprocess_exec(
            "ip", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise NetworkError(f"ip: {error.strerror}") from error
    printed, said = await process.communicate()
    if process.returncode:
        raise NetworkError(f"ip {' '.join(words)}: {said.decode(errors='replace').strip()}")
    return printed.decode(errors="replace")
