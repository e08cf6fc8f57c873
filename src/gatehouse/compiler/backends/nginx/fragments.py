"""Fragments of the NGINX configuration: files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gatehouse.compiler.backends import fragments
from gatehouse.compiler.backends.fragments import ChangeTracker
from gatehouse.dataplane.file_set import File, FileSet

__all__ = ["ChangeTracker", "Fragment", "Fragments", "properties_key", "cluster_key"]

Fragment = fragments.Fragment[File]


class Fragments(fragments.Fragments[File, FileSet]):
    """All fragments of a gateway, and the file set of their files."""

    def __init__(self) -> None:
        super().__init__(FileSet())

    def put_if_changed(
        self, key: str, inputs: tuple[Any, ...], make: Callable[[], Iterable[File]]
    ) -> None:
        """Put the files of ``make``; call it only if ``inputs`` differs from the last call."""
        known = self.get(key)
        if known is None or known.inputs != inputs:
            self.put(key, Fragment(tuple(make()), inputs=inputs))


def properties_key(cluster: str) -> str:
    """Return the dependency key for the properties of a cluster other than its endpoints."""
    return f"properties/{cluster}"


def cluster_key(cluster: str) -> str:
    """Return the dependency key for all of a cluster, endpoints included."""
    return f"cluster/{cluster}"
