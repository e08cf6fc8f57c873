"""Service proxy (the role of kube-proxy) with nftables rules.

A connection to the cluster IP or load balancer IP of a Service goes to a random ready Pod and stays
there. Clients are this machine and its Pods; Pods see the address of the bridge as source. Pods
outside this machine's network are not supported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fakes.workloads.pod_networks import NetworkError, PodNetworks

log = structlog.get_logger("fakes.workloads")

SERVICE_LABEL = "kubernetes.io/service-name"

Name = tuple[str, str]
Objects = Mapping[Name, Mapping[str, Any]]
Target = tuple[str, int]

_SETTINGS = Path("/proc/sys/net/ipv4/conf")
_BALANCED = "LoadBalancer"

RETRY_SECONDS = 1.0
"""Delay in seconds before a failed update is repeated."""


class Rule(msgspec.Struct, frozen=True, order=True):
    """Targets of connections to one address and port."""

    address: str
    port: int
    protocol: str
    """tcp or udp."""
    targets: tuple[Target, ...]
    """If empty, connections are rejected immediately."""


def rules(services: Objects, slices: Objects, is_local: Callable[[str], bool]) -> tuple[Rule, ...]:
    """Return the rules for Services. ``is_local`` returns whether an address is a local Pod's."""
    by_service: dict[Name, list[Mapping[str, Any]]] = {}
    for (namespace, _), endpoint_slice in slices.items():
        service = (endpoint_slice["metadata"].get("labels") or {}).get(SERVICE_LABEL, "")
        by_service.setdefault((namespace, service), []).append(endpoint_slice)
    result = (
        rule
        for name, service in services.items()
        for rule in _of_service(service, by_service.get(name, []), is_local)
    )
    return tuple(sorted(result))


def _of_service(
    service: Mapping[str, Any], slices: list[Mapping[str, Any]], is_local: Callable[[str], bool]
) -> Iterator[Rule]:
    spec = service.get("spec", {})
    if not spec.get("selector"):
        return
    for port in spec.get("ports") or ():
        endpoints = [
            target for endpoint_slice in slices for target in _targets(endpoint_slice, port)
        ]
        if any(not is_local(address) for (address, _), _, _ in endpoints):
            # For example a data plane that uses the Service's address itself.
            continue
        targets = tuple(sorted(set(_selected_targets(endpoints))))
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
    endpoint_slice: Mapping[str, Any], port: Mapping[str, Any]
) -> Iterator[tuple[Target, bool, bool]]:
    """Yield a slice's endpoints for a port, each with ready and serving-while-terminating."""
    numbers = [
        slice_port["port"]
        for slice_port in endpoint_slice.get("ports") or ()
        if slice_port.get("name", "") == port.get("name", "")
    ]
    for endpoint in (endpoint_slice.get("endpoints") or ()) if numbers else ():
        conditions = endpoint.get("conditions") or {}
        for address in endpoint["addresses"]:
            yield (
                (str(address), int(numbers[0])),
                conditions.get("ready") is not False,
                bool(conditions.get("serving") and conditions.get("terminating")),
            )


def _selected_targets(endpoints: Iterable[tuple[Target, bool, bool]]) -> list[Target]:
    """Return the ready targets; if there are none, those that serve while terminating."""
    all_endpoints = list(endpoints)
    ready = [target for target, is_ready, _ in all_endpoints if is_ready]
    return ready or [target for target, _, is_draining in all_endpoints if is_draining]


def ruleset(table: str, bridge: str, rules: Iterable[Rule]) -> str:
    """Return the input of ``nft`` that replaces the rules of a table atomically.

    Base chains are never recreated, so that existing connections keep their translation.
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
    for rule in rules:
        match = f"ip daddr {rule.address} {rule.protocol} dport {rule.port}"
        if rule.targets:
            choices = ", ".join(
                f"{number} : {address} . {port}"
                for number, (address, port) in enumerate(rule.targets)
            )
            random_target = f"numgen random mod {len(rule.targets)} map {{ {choices} }}"
            lines.append(f"add rule ip {table} services {match} dnat to {random_target}")
        else:
            reject_type = " with tcp reset" if rule.protocol == "tcp" else ""
            lines.append(f"add rule ip {table} nobody {match} reject{reject_type}")
    lines += [
        f"add rule ip {table} from-here jump services",
        f'add rule ip {table} from-pods iifname "{bridge}" jump services',
        f'add rule ip {table} back ct status dnat oifname "{bridge}" masquerade',
        f"add rule ip {table} refuse-here jump nobody",
        f'add rule ip {table} refuse-pods iifname "{bridge}" jump nobody',
    ]
    return "\n".join(lines) + "\n"


class ServiceProxy:
    """Writes the nftables rules of one Pod network."""

    def __init__(self, networks: PodNetworks) -> None:
        self._networks = networks
        self._table = networks.bridge
        self._written: tuple[Rule, ...] | None = None
        self._last_error = ""
        self._wake_up = asyncio.Event()

    def wake(self) -> None:
        """Update the rules soon. Call this when Services or their Pods changed."""
        self._wake_up.set()

    async def run(self, services: Objects, slices: Objects) -> None:
        """Update the rules until cancelled."""
        self.wake()
        while True:
            await self._wake_up.wait()
            self._wake_up.clear()
            if not await self.follow(services, slices):
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self.wake)

    async def follow(self, services: Objects, slices: Objects) -> bool:
        """Update the kernel's rules. Return whether that succeeded; errors are logged."""
        desired = rules(services, slices, self._networks.contains)
        if desired == self._written:
            return True
        try:
            self._permit()
            await _nft(ruleset(self._table, self._networks.bridge, desired))
        except (NetworkError, OSError) as error:
            if str(error) != self._last_error:
                log.warning("Service rules not updated", error=str(error))
            self._last_error, self._written = str(error), None
            return False
        self._last_error, self._written = "", desired
        return True

    async def close(self) -> None:
        """Delete the rules."""
        if self._written is None:
            return
        await _nft(f"delete table ip {self._table}\n")

    def _permit(self) -> None:
        """Enable forwarding and routing of loopback addresses for this bridge."""
        for name in ("forwarding", "route_localnet"):
            (_SETTINGS / self._networks.bridge / name).write_text("1")


async def _nft(text: str) -> None:
    """Run ``nft``. Raises NetworkError with its error output, or OSError."""
    process = await asyncio.create_subprocess_exec(
        *("nft", "-f", "-"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate(text.encode())
    if process.returncode:
        raise NetworkError(f"nft: {errors.decode(errors='replace').strip()}")
