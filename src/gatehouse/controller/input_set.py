"""Inputs of compile passes that are computed together and replaced together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.incremental.query import Key


class InputSet:
    """Keeps the inputs of each owner equal to the latest ones."""

    def __init__(self, put: Callable[[Key, Any], bool]) -> None:
        """``put`` stores an input, or removes it if None, and returns whether it changed."""
        self._put = put
        self._keys: dict[Key, frozenset[Key]] = {}

    def update(self, owner: Key, inputs: Mapping[Key, Any]) -> bool:
        """Replace the inputs of ``owner``. Return whether any changed."""
        changed = False
        for key in self._keys.pop(owner, frozenset()) | inputs.keys():
            changed |= self._put(key, inputs.get(key))
        if inputs:
            self._keys[owner] = frozenset(inputs)
        return changed
