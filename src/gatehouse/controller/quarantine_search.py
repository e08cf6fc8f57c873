"""Search for the part of a configuration that a proxy rejected without naming it. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.assumed_good import SearchScope
from gatehouse.controller.held_back import HeldBack, is_route
from gatehouse.controller.published_versions import Version
from gatehouse.dataplane.origin import Origin

Parts = tuple[Suspect, ...]


class Search(msgspec.Struct):
    """Search for the cause of the rejection of one version.

    The first step holds all parts back, which must be accepted. Then the parts are tried by halves:
    first policies, filters and credentials, of which there are few, then routes. A part that is
    rejected alone stays held back until the end. Objects that change meanwhile are in every step.
    If such a step is rejected, they are held back and tried last.
    """

    version: str
    """The rejected version."""
    changes: int
    """Number of changes of objects before :attr:`new`."""
    scope: SearchScope
    new: ir.GatewayConfiguration
    """The newest configuration of which a step was accepted or rejected."""
    held: set[Suspect]
    """Parts that are held back."""
    scopes: Iterator[SearchScope]
    """The next scopes, for the case that the cause is none of the parts."""
    among: tuple[Origin, ...] = ()
    """Origins of what was rejected, if the proxy names it."""
    groups: list[Parts] = []
    """Held parts that are still to be tried, the next group last."""
    trying: Parts = ()
    """Parts under trial; empty: everything is held back, which must be accepted."""
    blamed: tuple[Suspect, str] | None = None
    """A part that was rejected alone, to be verified without it."""
    since: int | None = None
    """Number of the first version of this step; None until it is published."""
    finished: bool = False
    """True if every part was tried."""
    successful: bool = False
    """True if a part was left out as the result."""
    _input: HeldBack | None = None

    @classmethod
    def start(
        cls,
        version: str,
        rejected: Version,
        scopes: Iterator[SearchScope],
        among: tuple[Origin, ...] = (),
    ) -> Search | None:
        """Return a search in the first scope with any parts; None if there is none.

        ``version``: that of ``rejected``. ``scopes``: where the cause may be.
        """
        for scope in scopes:
            # A proxy that names routes may reject them because of a policy or filter.
            parts = tuple(
                part
                for part in scope.parts
                if not among or part.origin in among or not is_route(part)
            )
            if not parts:
                continue
            search = cls(version, rejected.changes, scope, rejected.compiled, set(parts), scopes)
            search.among = among
            search._split(tuple(part for part in parts if is_route(part)))
            if others := tuple(part for part in parts if not is_route(part)):
                search.groups.append(others)
            return search
        return None

    def widened(self) -> Search | None:
        """Return a search in the next scope; None if the cause is in none."""
        return Search.start(self.version, self.rejected, self.scopes, self.among)

    @property
    def rejected(self) -> Version:
        """The rejected version."""
        return Version(0, self.new, self.new, self.changes, frozenset())

    @property
    def input(self) -> HeldBack:
        """Everything that is held back in this step. The same object during one step."""
        if self._input is None:
            scope, held = self.scope, frozenset(self.held.difference(self.trying))
            self._input = HeldBack(scope.good, held, scope.view, scope.trial)
        return self._input

    def concerns(self, among: Sequence[Origin]) -> bool:
        """Return whether a rejection of these origins is about the same resource.

        Empty origins, as of a whole configuration, concern every search.
        """
        return not (self.among and among) or not set(self.among).isdisjoint(among)

    def accept(self, version: Version) -> tuple[Suspect, str] | None:
        """Process that the step was accepted. Return a part that is the cause, and the reason.

        ``version``: a version of this step.
        """
        self.new, self.changes = version.compiled, version.changes
        cause, self.blamed = self.blamed, None
        self.held.difference_update(self.trying)
        self.finished = not self.groups
        if self.groups:
            self._next_step()
        return cause

    def hold_late(self, version: Version, parts: Parts) -> bool:
        """Hold back parts that changed during the search, and try them last.

        Return False if nothing did since the last rejected version. Else this step starts again.
        """
        self.new, self.changes = version.compiled, version.changes
        late = tuple(part for part in parts if part not in self.held)
        if not late:
            return False
        self.held.update(late)
        self.groups.insert(0, late)
        self._set_trying(self.trying)
        return True

    def reject(self, reason: str) -> bool:
        """Process that the step was rejected. Return False if the cause is none of the parts."""
        if not self.trying:
            return False
        if len(self.trying) == 1:
            self.blamed = (self.trying[0], reason)
            self._set_trying(())
        else:
            self._split(self.trying)
            self._next_step()
        return True

    def _next_step(self) -> None:
        self._set_trying(self.groups.pop())

    def _set_trying(self, parts: Parts) -> None:
        self.trying, self.since, self._input = parts, None, None

    def _split(self, group: Parts) -> None:
        """Add both halves of a group."""
        half = len(group) // 2
        self.groups += [part for part in (group[half:], group[:half]) if part]


def named_suspects(gateway: ir.GatewayConfiguration, among: tuple[Origin, ...]) -> list[Suspect]:
    """Return the suspects if a proxy names one object, or the objects of one credential."""
    if not among:
        return []
    suspects = [
        Suspect(among[0], credential=c.name) for c in gateway.credentials if c.origins == among
    ]
    return suspects or ([Suspect(among[0])] if len(among) == 1 else [])
