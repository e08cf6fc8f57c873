"""Filter chains of an HTTPS port: which of its names are served alike."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.compiler.ir import http as ir


class Chain(msgspec.Struct, frozen=True):
    """Names of an HTTPS port that are served alike, with their certificates."""

    listener: str
    """The hostname of the Gateway's listener."""
    certificates: tuple[str, ...]
    names: tuple[str, ...]
    number: int = 0
    """Tells chains of one listener apart."""


class Chains:
    """The names of a port by listener and certificates, kept while hosts come and go."""

    def __init__(self) -> None:
        self._names: dict[str, dict[tuple[str, ...], set[str]]] = {}

    @property
    def listeners(self) -> set[str]:
        """The hostnames of the Gateway's listeners that any of the names belong to."""
        return set(self._names)

    def follow(self, fresh: Iterable[ir.VirtualHost], gone: Iterable[ir.VirtualHost]) -> None:
        """Take note of hosts that are new, and of those that are there no more."""
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
        """Give the chains: one per listener of the Gateway, if all its names are served alike."""
        made = []
        for name, groups in sorted(self._names.items()):
            # The listener's own hostname stands for all names that have its certificates.
            ordered = [(name not in found, min(found), each) for each, found in groups.items()]
            for number, (_, _, certificates) in enumerate(sorted(ordered)):
                told = tuple(sorted(groups[certificates])) if number else (name,)
                made.append(Chain(name, certificates, told, number))
        return tuple(made)
