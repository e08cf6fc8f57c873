"""Filter chains of an HTTPS port: groups of hostnames with the same configuration."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.compiler.ir import http as ir


class Chain(msgspec.Struct, frozen=True):
    """Hostnames of an HTTPS port that share a filter chain, with their certificates."""

    listener: str
    """Hostname of the Gateway listener."""
    certificates: tuple[str, ...]
    names: tuple[str, ...]
    number: int = 0
    """Distinguishes chains of one listener."""


class Chains:
    """Hostnames of a port, grouped by listener and certificates."""

    def __init__(self) -> None:
        self._names: dict[str, dict[tuple[str, ...], set[str]]] = {}

    @property
    def listeners(self) -> set[str]:
        """Hostnames of the Gateway listeners that any hostname belongs to."""
        return set(self._names)

    def follow(self, fresh: Iterable[ir.VirtualHost], gone: Iterable[ir.VirtualHost]) -> None:
        """Add and remove hosts."""
        for host in gone:
            groups = self._names[host.listener]
            groups[host.certificates].remove(host.hostname)
            if not groups[host.certificates]:
                del groups[host.certificates]
            if not groups:
                del self._names[host.listener]
        for host in fresh:
            groups = self._names.setdefault(host.listener, {})
            groups.setdefault(host.certificates, set()).add(host.hostname)

    def all(self) -> tuple[Chain, ...]:
        """Return the chains: one per Gateway listener, if all its hostnames have the same
        certificates."""
        chains = []
        for name, groups in sorted(self._names.items()):
            # The hostname of the listener covers all hostnames with its certificates.
            ordered = [(name not in group, min(group), each) for each, group in groups.items()]
            for number, (_, _, certificates) in enumerate(sorted(ordered)):
                hostnames = tuple(sorted(groups[certificates])) if number else (name,)
                chains.append(Chain(name, certificates, hostnames, number))
        return tuple(chains)
