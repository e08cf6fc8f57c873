"""Network interface with the advertised addresses.

It is a separate interface, because the kernel would choose an address on `lo` as source of the
node's own connections. The scope is global, because some network plugins send packets to an address
of host scope out of the node. Needs CAP_NET_ADMIN and the command `ip` (iproute2).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from gatehouse.nodeproxy.commands import CommandError, CommandMissingError, run_command
from gatehouse.nodeproxy.options import IPAddress, LinkKind

_SILENT: dict[LinkKind, tuple[str, ...]] = {"dummy": (), "bridge": ("mcast_snooping", "0")}
"""Options that keep a bridge from sending multicast reports with the address as source."""


class Link(msgspec.Struct, frozen=True):
    """Desired state of the interface."""

    name: str
    kind: LinkKind
    addresses: tuple[IPAddress, ...]

    async def ensure(self) -> list[str]:
        """Reconcile the interface. Return the changes as text. Raises CommandError."""
        done = []
        state = await _show()
        if self.name not in state:
            await run_command(
                "ip", "link", "add", self.name, "type", self.kind, *_SILENT[self.kind]
            )
            done.append(f"created interface {self.name}")
            state = await _show()
        elif (kind := state[self.name].kind) != self.kind:
            raise CommandError(
                f"interface {self.name} has kind {kind or 'physical'}, must be {self.kind}: "
                "not managed by Gatehouse"
            )
        for address in self.addresses:
            done += await self._remove_elsewhere(address, state)
        for address in self.addresses:
            if address not in state[self.name].addresses:
                await self._add(address)
                done.append(f"added {address} to {self.name}")
        for address in state[self.name].addresses - set(self.addresses):
            if not address.is_link_local:
                await _remove(self.name, address)
                done.append(f"removed {address} from {self.name}")
        if not state[self.name].up:
            await run_command("ip", "link", "set", self.name, "up")
            done.append(f"set {self.name} up")
        return done

    async def remove(self) -> list[str]:
        """Remove the interface with its addresses if it exists. Return the changes as text.

        Raises CommandError.
        """
        state = (await _show()).get(self.name)
        if state is None:
            return []
        if state.kind != self.kind:
            raise CommandError(f"interface {self.name} not removed: not managed by Gatehouse")
        await run_command("ip", "link", "del", self.name)
        return [f"removed interface {self.name}"]

    async def _remove_elsewhere(self, address: IPAddress, state: dict[str, _State]) -> list[str]:
        """Remove an address of an earlier installation from all other interfaces."""
        done = []
        for name, interface in state.items():
            if name != self.name and address in interface.addresses:
                await _remove(name, address)
                done.append(f"removed {address} from {name}")
        return done

    async def _add(self, address: IPAddress) -> None:
        words = ["ip", "addr", "replace", f"{address}/{address.max_prefixlen}", "dev", self.name]
        if address.version == 6:
            # No other machine has it, so skip duplicate address detection to bind it at once.
            words.append("nodad")
        await run_command(*words, "scope", "global")


async def changes() -> AsyncIterator[None]:
    """Yield at each change of interfaces and addresses until the kernel's reports end.

    Raises CommandMissingError.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            "ip", "monitor", "link", "address", stdout=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise CommandMissingError("command ip not found") from error
    assert process.stdout is not None
    try:
        while await process.stdout.readline():
            yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class _State(msgspec.Struct, frozen=True):
    kind: str
    up: bool
    addresses: frozenset[IPAddress]


async def _show() -> dict[str, _State]:
    links: list[dict[str, Any]] = json.loads(
        await run_command("ip", "-json", "-details", "addr") or "[]"
    )
    return {
        link["ifname"]: _State(
            link.get("linkinfo", {}).get("info_kind", ""),
            "UP" in link.get("flags", ()),
            frozenset(
                ipaddress.ip_address(entry["local"])
                for entry in link.get("addr_info", ())
                if "local" in entry
            ),
        )
        for link in links
        if "ifname" in link
    }


async def _remove(name: str, address: IPAddress) -> None:
    links: list[dict[str, Any]] = json.loads(
        await run_command("ip", "-json", "addr", "show", "dev", name)
    )
    for entry in links[0].get("addr_info", ()):
        if entry.get("local") == str(address):
            await run_command("ip", "addr", "del", f"{address}/{entry['prefixlen']}", "dev", name)
