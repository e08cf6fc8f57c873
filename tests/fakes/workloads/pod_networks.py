"""Network namespaces of Pods, connected to a bridge on this machine.

Needs root and the command ``ip`` (iproute2). Names derive from the Pod's UID and the address range,
so that a later node process finds existing networks.
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
"""Needed for veth pairs and namespaces; root in a container may lack them."""


class NetworkError(Exception):
    """Raised if a network cannot be created; the message contains the output of ``ip``."""


class PodNetworks:
    """Networks of this node's Pods, in one range of addresses."""

    def __init__(self, cidr: str) -> None:
        self._range = ipaddress.IPv4Network(cidr)
        digest = hashlib.sha256(cidr.encode()).hexdigest()[:8]
        self.bridge = f"gh{digest}"
        """Bridge of all veth pairs; it has the first address of the range."""
        self._prefix = f"gh-{digest}-"
        self._ready = False
        self._lock = asyncio.Lock()

    @property
    def unavailable_reason(self) -> str:
        """Return why this machine cannot create Pod networks; empty if it can."""
        if os.geteuid() != 0:
            return "Pod networks require root"
        missing = _missing_capabilities(Path("/proc/self/status").read_text())
        if missing:
            return f"Pod networks require {' and '.join(missing)}"
        return "" if shutil.which("ip") else "command ip (package iproute2) not found"

    def name(self, uid: str) -> str:
        """Return the namespace of a Pod."""
        return self._prefix + hashlib.sha256(uid.encode()).hexdigest()[:8]

    def enter(self, uid: str) -> tuple[str, ...]:
        """Return the command prefix that enters a Pod's network."""
        return ("nsenter", f"--net={NAMESPACES / self.name(uid)}", "--")

    def contains(self, address: str) -> bool:
        """Return whether an address belongs to this network."""
        try:
            return ipaddress.ip_address(address) in self._range
        except ValueError:
            return False

    def choose(self, uid: str, taken: Collection[str]) -> str:
        """Return a free address for a Pod, the same one if it is free. Raises NetworkError."""
        # Without network, bridge and broadcast address.
        usable = self._range.num_addresses - 3
        start = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8], "big") % usable
        for offset in range(usable):
            address = str(self._range.network_address + 2 + (start + offset) % usable)
            if address not in taken:
                return address
        raise NetworkError(f"no free address in {self._range}")

    async def current_address(self, uid: str) -> str:
        """Return the address of a Pod's network; empty if it is missing or incomplete."""
        name = self.name(uid)
        if not (NAMESPACES / name).exists():
            return ""
        try:
            # The route is created last: with it the network is complete.
            routes = json.loads(await _ip("-n", name, "-j", "route", "show", "default") or "[]")
            links = json.loads(await _ip("-n", name, "-j", "-4", "addr", "show", "eth0") or "[]")
        except NetworkError:
            return ""
        addresses = [address["local"] for link in links for address in link.get("addr_info", ())]
        return str(addresses[0]) if routes and addresses else ""

    async def prepare(self) -> None:
        """Create the bridge if it is missing. Raises NetworkError."""
        async with self._lock:
            if self._ready:
                return
            if not (LINKS / self.bridge).exists():
                await _ip("link", "add", self.bridge, "type", "bridge")
            gateway = self._range.network_address + 1
            await _ip("addr", "replace", f"{gateway}/{self._range.prefixlen}", "dev", self.bridge)
            await _ip("link", "set", self.bridge, "up")
            self._ready = True

    async def create(self, uid: str, address: str) -> None:
        """Create a Pod's network if it is missing or incomplete. Raises NetworkError."""
        await self.prepare()
        host_link = self._host_link(uid)
        if await self.current_address(uid) == address:
            # The bridge may have been recreated.
            await _ip("link", "set", host_link, "master", self.bridge, "up")
            return
        await self.remove(uid)
        name = self.name(uid)
        length, gateway = self._range.prefixlen, self._range.network_address + 1
        try:
            await _ip("netns", "add", name)
            await _ip(
                "link", "add", host_link, "type", "veth", "peer", "name", "eth0", "netns", name
            )
            await _ip("link", "set", host_link, "master", self.bridge, "up")
            await _ip("-n", name, "link", "set", "lo", "up")
            await _ip("-n", name, "link", "set", "eth0", "address", _mac_address(address))
            await _ip("-n", name, "addr", "add", f"{address}/{length}", "dev", "eth0")
            await _ip("-n", name, "link", "set", "eth0", "up")
            await _ip("-n", name, "route", "add", "default", "via", str(gateway))
        except NetworkError:
            with contextlib.suppress(NetworkError):
                await self.remove(uid)
            raise

    async def remove(self, uid: str) -> None:
        """Delete a Pod's network and its veth pair."""
        host_link = self._host_link(uid)
        if (LINKS / host_link).exists():
            # Deleted explicitly: the namespace exists as long as any process in it.
            with contextlib.suppress(NetworkError):
                await _ip("link", "del", host_link)
        if (NAMESPACES / self.name(uid)).exists():
            await _ip("netns", "del", self.name(uid))

    async def retain(self, uids: Collection[str]) -> None:
        """Delete the networks of all Pods except these."""
        names = {self.name(uid) for uid in uids}
        for name in self._namespaces():
            if name not in names:
                await _ip("netns", "del", name)

    async def close(self) -> None:
        """Delete the bridge if no network uses it."""
        if self._ready and not self._namespaces():
            await _ip("link", "del", self.bridge)
            self._ready = False

    def _namespaces(self) -> list[str]:
        return [path.name for path in NAMESPACES.glob(f"{self._prefix}*")]

    def _host_link(self, uid: str) -> str:
        """Return the name of the host's end of a veth pair."""
        return f"v{self.name(uid).rpartition('-')[2]}"


def _mac_address(address: str) -> str:
    """Return the MAC address for an IP address. Derived, so that ARP caches stay valid."""
    return ":".join(f"{byte:02x}" for byte in (0x0A, 0x58, *ipaddress.IPv4Address(address).packed))


def _missing_capabilities(status: str) -> list[str]:
    """Return the required capabilities that are missing in a ``/proc/<pid>/status``."""
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), "")
    effective = int(line.partition(":")[2] or "0", 16)
    return [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]


async def _ip(*arguments: str) -> str:
    """Run ``ip`` and return its output. Raises NetworkError."""
    try:
        process = await asyncio.create_subprocess_exec(
            "ip", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise NetworkError(f"ip: {error.strerror}") from error
    output, errors = await process.communicate()
    if process.returncode:
        raise NetworkError(f"ip {' '.join(arguments)}: {errors.decode(errors='replace').strip()}")
    return output.decode(errors="replace")
