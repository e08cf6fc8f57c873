"""Services' addresses lead to Pods: what a cluster's nodes do, by the kernel's nftables.

Connections to a Service's cluster address, or to that of its load balancer, go to one of its ready
Pods by chance, and stay there however the Pods change. They come from this machine or from Pods,
and Pods see them come from the bridge. Pods beyond this machine's network are not led to.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from gatehouse.standalone.node.pod_networks import NetworkError, PodNetworks

log = structlog.get_logger("gatehouse.node")

SERVICE_LABEL = "kubernetes.io/service-name"

Name = tuple[str, str]
Objects = Mapping[Name, Mapping[str, Any]]
Target = tuple[str, int]

_SETTINGS = Path("/proc/sys/net/ipv4/conf")
_BALANCED = "LoadBalancer"

RETRY_SECONDS = 1.0
"""Seconds until what failed is tried again."""


class Rule(msgspec.Struct, frozen=True, order=True):
    """Where connections to one address and port go."""

    address: str
    port: int
    protocol: str
    """tcp or udp."""
    targets: tuple[Target, ...]
    """Empty: nobody answers, which clients are to learn at once."""


def rules(services: Objects, slices: Objects, ours: Callable[[str], bool]) -> tuple[Rule, ...]:
    """Give what is to be led where; ``ours`` says which Pods' addresses can be led to."""
    by_service: dict[Name, list[Mapping[str, Any]]] = {}
    for (namespace, _), each in slices.items():
        service = (each["metadata"].get("labels") or {}).get(SERVICE_LABEL, "")
        by_service.setdefault((namespace, service), []).append(each)
    found = (
        rule
        for name, service in services.items()
        for rule in _of_service(service, by_service.get(name, []), ours)
    )
    return tuple(sorted(found))


def _of_service(
    service: Mapping[str, Any], slices: list[Mapping[str, Any]], ours: Callable[[str], bool]
) -> Iterator[Rule]:
    spec = service.get("spec", {})
    if not spec.get("selector"):
        return
    for port in spec.get("ports") or ():
        everyone = [target for each in slices for target in _targets(each, port)]
        if any(not ours(address) for (address, _), _, _ in everyone):
            # A data plane that has the Service's address as its own, for one.
            continue
        targets = tuple(sorted(set(_chosen(everyone))))
        for address in _addresses(service):
            protocol = str(port.get("protocol", "TCP")).lower()
            yield Rule(address, int(port["port"]), protocol, targets)


def _addresses(service: Mapping[str, Any]) -> Iterator[str]:
    spec = service["spec"]
    if spec.get("clusterIP") not in (None, "", "None"):
        yield str(spec["clusterIP"])
    if spec.get("type") == _BALANCED:
        for entry in (service.get("status") or {}).get("loadBalancer", {}).get("ingress") or ():
            if entry.get("ip"):
                yield str(entry["ip"])


def _targets(
    each: Mapping[str, Any], port: Mapping[str, Any]
) -> Iterator[tuple[Target, bool, bool]]:
    """Give a slice's endpoints for a port: whether each is ready, and whether it still serves."""
    numbers = [
        p["port"] for p in each.get("ports") or () if p.get("name", "") == port.get("name", "")
    ]
    for endpoint in (each.get("endpoints") or ()) if numbers else ():
        conditions = endpoint.get("conditions") or {}
        for address in endpoint["addresses"]:
            yield (
                (str(address), int(numbers[0])),
                conditions.get("ready") is not False,
                bool(conditions.get("serving") and conditions.get("terminating")),
            )


def _chosen(everyone: Iterable[tuple[Target, bool, bool]]) -> list[Target]:
    """Give those that are ready; where there is none, those that serve until they end."""
    known = list(everyone)
    ready = [target for target, is_ready, _ in known if is_ready]
    return ready or [target for target, _, lingers in known if lingers]


def ruleset(table: str, bridge: str, wanted: Iterable[Rule]) -> str:
    """Give the input of ``nft`` that has a table do just that, in one step.

    Base chains are never made anew: connections that were led already must not be let go of.
    """
    lines = [
        f"add table ip {table}",
        *(f"add chain ip {table} {chain}" for chain in ("services", "nobody")),
        *(
            f"add chain ip {table} {name} {{ type {kind} hook {hook} priority {priority}; }}"
            for name, kind, hook, priority in (
                ("from-here", "nat", "output", -100),
                ("from-pods", "nat", "prerouting", -100),
                ("back", "nat", "postrouting", 100),
                ("refuse-here", "filter", "output", 0),
                ("refuse-pods", "filter", "forward", 0),
            )
        ),
        *(
            f"flush chain ip {table} {chain}"
            for chain in (
                *("services", "nobody", "from-here", "from-pods"),
                *("back", "refuse-here", "refuse-pods"),
            )
        ),
    ]
    for rule in wanted:
        to = f"ip daddr {rule.address} {rule.protocol} dport {rule.port}"
        if rule.targets:
            choices = ", ".join(
                f"{number} : {address} . {port}"
                for number, (address, port) in enumerate(rule.targets)
            )
            by_chance = f"numgen random mod {len(rule.targets)} map {{ {choices} }}"
            lines.append(f"add rule ip {table} services {to} dnat to {by_chance}")
        else:
            how = " with tcp reset" if rule.protocol == "tcp" else ""
            lines.append(f"add rule ip {table} nobody {to} reject{how}")
    lines += [
        f"add rule ip {table} from-here jump services",
        f'add rule ip {table} from-pods iifname "{bridge}" jump services',
        f'add rule ip {table} back ct status dnat oifname "{bridge}" masquerade',
        f"add rule ip {table} refuse-here jump nobody",
        f'add rule ip {table} refuse-pods iifname "{bridge}" jump nobody',
    ]
    return "\n".join(lines) + "\n"


class ServiceProxy:
    """The kernel's rules of one Pod network."""

    def __init__(self, networks: PodNetworks) -> None:
        self._networks = networks
        self._table = networks.bridge
        self._known: tuple[Rule, ...] | None = None
        self._said = ""
        self._woken = asyncio.Event()

    @property
    def trouble(self) -> str:
        """Why this machine cannot do it; empty if it can."""
        if self._networks.trouble:
            return self._networks.trouble
        return "" if shutil.which("nft") else "the command nft (package nftables) is missing"

    def wake(self) -> None:
        """Look again: Services or their Pods changed."""
        self._woken.set()

    async def run(self, services: Objects, slices: Objects) -> None:
        """Follow the objects for ever."""
        if self.trouble:
            log.warning("Services are not led to their Pods", reason=self.trouble)
            return
        self.wake()
        while True:
            await self._woken.wait()
            self._woken.clear()
            if not await self.follow(services, slices):
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self.wake)

    async def follow(self, services: Objects, slices: Objects) -> bool:
        """Have the kernel follow; False, after a word in the log, if it cannot."""
        wanted = rules(services, slices, self._networks.contains)
        if wanted == self._known:
            return True
        try:
            await self._networks.prepare()
            self._permit()
            await _nft(ruleset(self._table, self._networks.bridge, wanted))
        except (NetworkError, OSError) as error:
            if str(error) != self._said:
                log.warning("Services are not led to their Pods", reason=str(error))
            self._said, self._known = str(error), None
            return False
        self._said, self._known = "", wanted
        return True

    async def close(self) -> None:
        """Remove the rules."""
        if self._known is None:
            return
        self._known = None
        try:
            await _nft(f"delete table ip {self._table}\n")
        except (NetworkError, OSError) as error:
            log.warning("rules for Services not removed", error=str(error))

    def _permit(self) -> None:
        """Allow what only this bridge needs: forwarding, and answers to loopback addresses."""
        for name in ("forwarding", "route_localnet"):
            (_SETTINGS / self._networks.bridge / name).write_text("1")


async def _nft(text: str) -> None:
    """Run ``nft``. Raises NetworkError with what it complained of, or OSError."""
    process = await asyncio.create_subprocess_exec(
        *("nft", "-f", "-"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate(text.encode())
    if process.returncode:
        raise NetworkError(f"nft: {said.decode(errors='replace').strip()}")
