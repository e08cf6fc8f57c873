"""What companions are to do, as the control plane describes it, and what it is answered. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gatehouse.dataplane.xds.resources import SIDECAR_CONFIG, Key, Resource
from gatehouse.dataplane.xds.subscription import UNKNOWN_VERSION


class SidecarResult(msgspec.Struct, frozen=True):
    """What became of what the control plane described last."""

    nonce: str
    """Of its response; empty: it awaits no answer."""
    taken: tuple[Resource, ...]
    gone: tuple[Key, ...]
    refused: Mapping[str, str]
    """Reasons, by name, as far as that response told of these."""


class SidecarResources:
    """The newest descriptions, and those that companions took last."""

    def __init__(self, kept: Iterable[Resource]) -> None:
        self.wanted: Mapping[str, Resource] = {each.name: each for each in kept}
        """By name; another object after each change."""
        self._good = self.wanted
        self._nonce = ""
        self._names: frozenset[str] = frozenset()

    def versions(self) -> dict[str, str]:
        """Give what the control plane is told is there already, by name."""
        agreed = {
            name: each.version for name, each in self._good.items() if self.wanted.get(name) == each
        }
        return dict.fromkeys((*self._good, *self.wanted), UNKNOWN_VERSION) | agreed

    def forget_stream(self) -> None:
        """Take note that nobody awaits an answer any more."""
        self._nonce = ""

    def on_response(self, nonce: str, new: Iterable[Resource], gone: Iterable[str]) -> None:
        """Take in what the control plane says."""
        told = {each.name: each for each in new}
        left = {*gone}
        kept = {name: each for name, each in self.wanted.items() if name not in left}
        self.wanted = kept | told
        self._nonce, self._names = nonce, frozenset(told) | left

    def on_result(
        self, told: Mapping[str, Resource], refused: Mapping[str, str]
    ) -> SidecarResult | None:
        """Take note of what companions did with ``told``; None: there is something newer by now."""
        if told is not self.wanted:
            return None
        good = {
            name: each
            for name, each in {**told, **{name: self._good.get(name) for name in refused}}.items()
            if each is not None
        }
        taken = tuple(each for name, each in good.items() if self._good.get(name) != each)
        gone = tuple((SIDECAR_CONFIG, name) for name in self._good.keys() - good.keys())
        nonce, self._nonce = self._nonce, ""
        self.wanted = self._good = good
        reasons = {name: why for name, why in refused.items() if name in self._names}
        return SidecarResult(nonce, taken, gone, reasons)
