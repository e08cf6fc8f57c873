"""Parts of what an NGINX has: files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gatehouse.compiler.backends import fragments
from gatehouse.compiler.backends.fragments import ChangeTracker, Unsupported
from gatehouse.dataplane.file_set import File, FileSet

__all__ = ["ChangeTracker", "Part", "Parts", "Unsupported", "look", "whole"]

Part = fragments.Fragment[File]


class Parts(fragments.Fragments[File, FileSet]):
    """All parts of a gateway, and the bundle of their files."""

    def __init__(self) -> None:
        super().__init__(FileSet())

    def keep(self, key: str, seen: tuple[Any, ...], make: Callable[[], Iterable[File]]) -> None:
        """Have the files of ``make``, made again only if ``seen`` is something else."""
        known = self.get(key)
        if known is None or known.seen != seen:
            self.put(key, Part(tuple(make()), seen=seen))


def look(cluster: str) -> str:
    """Give what a part uses that depends on how a cluster is spoken to."""
    return f"look/{cluster}"


def whole(cluster: str) -> str:
    """Give what a part uses that depends on all of a cluster."""
    return f"whole/{cluster}"
