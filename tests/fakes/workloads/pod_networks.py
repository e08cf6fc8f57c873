"""Network namespaces of Pods, connected to a bridge on this machine.

Needs root and the command ``ip`` (iproute2).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
from collections.abc import Collection
from pathlib import Path

NAMESPACES = Path("/run/netns")


class NetworkError(Exception):
    """Raised if a network cannot be created; the message contains the output of ``ip``."""


class PodNetworks:
    """Networks of Pods in one range of addresses."""

    def __init__(self, cidr: str) -> None:
        self._range = ipaddress.IPv4Network(cidr)
        digest = hashlib.sha256(cidr.encode()).hexdigest()[:8]
        self.bridge = f"gh{digest}"
        """Bridge of all veth pairs."""
        self.gateway = str(self._range.network_address + 1)
        """Address of the bridge."""
        self._prefix = f"gh-{digest}-"

    def enter(self, uid: str) -> tuple[str, ...]:
        """Return the command prefix that enters a Pod's network."""
        return ("nsenter", f"--net={NAMESPACES / self._name(uid)}", "--")

    def contains(self, address: str) -> bool:
        """Return whether an address belongs to this network."""
        return ipaddress.ip_address(address) in self._range

    def choose(self, uid: str, taken: Collection[str]) -> str:
        """Return a free address for a Pod."""
        # Without network, bridge and broadcast address.
        usable = self._range.num_addresses - 3
        start = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8], "big") % usable
        numbers = ((start + offset) % usable for offset in range(usable))
        addresses = (str(self._range.network_address + 2 + number) for number in numbers)
        return next(address for address in addresses if address not in taken)

    async def open(self) -> None:
        """Create the bridge."""
        await _ip("link", "add", self.bridge, "type", "bridge")
        await _ip("addr", "add", f"{self.gateway}/{self._range.prefixlen}", "dev", self.bridge)
        await _ip("link", "set", self.bridge, "up")

    async def create(self, uid: str, address: str) -> None:
        """Create a Pod's network. Raises NetworkError."""
        try:
            await self._create(uid, address)
        except NetworkError:
            await self.remove(uid)
            raise

    async def _create(self, uid: str, address: str) -> None:
        name, link = self._name(uid), self._host_link(uid)
        length = self._range.prefixlen
        await _ip("netns", "add", name)
        await _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        await _ip("link", "set", link, "master", self.bridge, "up")
        await _ip("-n", name, "link", "set", "lo", "up")
        await _ip("-n", name, "link", "set", "eth0", "address", _mac_address(address))
        await _ip("-n", name, "addr", "add", f"{address}/{length}", "dev", "eth0")
        await _ip("-n", name, "link", "set", "eth0", "up")
        await _ip("-n", name, "route", "add", "default", "via", self.gateway)

    async def remove(self, uid: str) -> None:
        """Delete a Pod's network and its veth pair."""
        # First the link: the namespace exists as long as any process in it.
        for words in (("link", "del", self._host_link(uid)), ("netns", "del", self._name(uid))):
            with contextlib.suppress(NetworkError):
                await _ip(*words)

    async def close(self) -> None:
        """Delete all networks and the bridge."""
        for name in self._left():
            # Of a Pod that was being started.
            await _ip("netns", "del", name)
        await _ip("link", "del", self.bridge)

    def _left(self) -> list[str]:
        return [path.name for path in NAMESPACES.glob(f"{self._prefix}*")]

    def _name(self, uid: str) -> str:
        return self._prefix + hashlib.sha256(uid.encode()).hexdigest()[:8]

    def _host_link(self, uid: str) -> str:
        """Return the name of the host's end of a veth pair."""
        return f"v{self._name(uid).rpartition('-')[2]}"


def _mac_address(address: str) -> str:
    """Return the MAC address for an IP address. Derived, so that ARP caches stay valid."""
    return ":".join(f"{byte:02x}" for byte in (0x0A, 0x58, *ipaddress.IPv4Address(address).packed))


async def _ip(*arguments: str) -> None:
    """Run ``ip``. Raises NetworkError."""
    process = await asyncio.create_subprocess_exec(
        "ip", *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    if process.returncode:
        raise NetworkError(f"ip {' '.join(arguments)}: {errors.decode(errors='replace').strip()}")
