"""Retries until a timeout: names of locations by the time that is left, and the maps behind them.

Each location waits at most for the time in its name. NGINX chooses one at each retry and at each
pause, so that the last of them ends an eighth of the timeout too late at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gatehouse.compiler.backends.nginx import functions, names
from gatehouse.compiler.backends.nginx.directives import Directive, DirectiveNode
from gatehouse.compiler.backends.nginx.traffic_settings import format_time

_PARTS = 8
"""Number of parts of a timeout."""


class RetryDeadline(msgspec.Struct, frozen=True):
    """Locations of the retries of one route."""

    scope: str
    """Scope of the maps: routes of one scope share them."""
    prefix: str
    """Name of the locations, without the ends that distinguish them."""
    seconds: float
    """Timeout of the request."""
    attempt_seconds: float
    """Timeout of each attempt; 0 without one."""
    retries: int
    """Maximum number of retries."""

    pause_seconds: float = 0.0
    """Pause before each retry; 0 without one."""

    @property
    def onward(self) -> str:
        """The location of the next attempt, as a token that NGINX expands."""
        return f'"{self.prefix}_${{{self._phase}}}_${{{self._left}}}"'

    @property
    def after_failure(self) -> str:
        """The location of the next attempt or of the pause before it, as such a token."""
        return f'"{self.prefix}_${{{self._pause}}}"' if self.pause_seconds else self.onward

    @property
    def pauses(self) -> dict[str, float]:
        """The locations of the pauses, with their seconds."""
        parts = self._paused_parts if self.pause_seconds else ()
        longest = self.pause_seconds
        return {self.location("paused", n): min(longest, self._seconds_of(n)) for n in parts}

    @property
    def phases(self) -> tuple[str, ...]:
        """The kinds of retries: those that another one follows, and the last."""
        return ("more", "last") if self.retries > 1 else ("last",)

    @property
    def steps(self) -> tuple[int, ...]:
        """Numbers of parts that may be left, of those with different timeouts of an attempt."""
        longest = min(self.attempt_seconds or self.seconds, self.seconds)
        return (*self._parts_before(longest), _PARTS)

    def location(self, phase: str, left: int) -> str:
        """Return the location of a retry or a pause if so many parts of the timeout are left."""
        return f"{self.prefix}_{phase}_{left}"

    def limited(
        self, nodes: Sequence[DirectiveNode], module: str, left: int
    ) -> list[DirectiveNode]:
        """Return directives whose timeouts do not exceed what is left."""
        timeouts = {f"{module}_{kind}_timeout" for kind in ("connect", "send", "read")}
        most = self._seconds_of(left)

        def limit(node: DirectiveNode) -> DirectiveNode:
            if not isinstance(node, Directive) or node.name not in timeouts:
                return node
            seconds = min(most, float(node.arguments[0].removesuffix("ms")) / 1000)
            return msgspec.structs.replace(node, arguments=(format_time(max(seconds, 0.001)),))

        return list(map(limit, nodes))

    def maps(self) -> tuple[Directive, ...]:
        """Return the maps, evaluated at each retry."""
        left = self._by_time(self._left, {part: str(part) for part in self.steps})
        # The statuses of all attempts before: "500 : 502".
        more = rf"~^[^:]*(?: : [^:]*){{0,{self.retries - 2}}}$"
        rows = [(more, "more")] if self.retries > 1 else []
        phase = functions.function('"$upstream_status"', self._phase, *rows, ("default", "last"))
        if not self.pause_seconds:
            return left, phase
        # When the timeout is over, the last attempt answers without a pause.
        ends = {0: "last_0"} | {part: f"paused_{part}" for part in self._paused_parts}
        return left, phase, self._by_time(self._pause, ends)

    def _by_time(self, variable: str, values: Mapping[int, str]) -> Directive:
        """Define a variable by the parts of the timeout that are left, the fewest first."""
        rows = [(self._pattern(part), value) for part, value in values.items() if part < _PARTS]
        return functions.function("$request_time", variable, *rows, ("default", values[_PARTS]))

    def _pattern(self, left: int) -> str:
        return f"~{at_least(round(self.seconds * 1000 * (_PARTS - left) / _PARTS))}"

    @property
    def _paused_parts(self) -> tuple[int, ...]:
        return (*self._parts_before(self.pause_seconds)[1:], _PARTS)

    def _parts_before(self, seconds: float) -> tuple[int, ...]:
        """Return the numbers of parts that are shorter than a time."""
        return tuple(part for part in range(_PARTS) if self._seconds_of(part) < seconds)

    def _seconds_of(self, parts: int) -> float:
        return self.seconds * parts / _PARTS

    @property
    def _left(self) -> str:
        return names.variable(
            self.scope, "retry deadline", f"{self.seconds} {self.attempt_seconds}"
        )

    @property
    def _pause(self) -> str:
        return names.variable(self.scope, "retry pause", f"{self.seconds} {self.pause_seconds}")

    @property
    def _phase(self) -> str:
        return names.variable(self.scope, "retry phase", str(self.retries))


def at_least(milliseconds: int) -> str:
    """Return a pattern of times of at least this, as NGINX writes them: ``12.345``."""
    text = f"{milliseconds // 1000}.{milliseconds % 1000:03}"
    whole = text.index(".")
    longer = rf"\d{{{whole + 1},}}\.\d+"
    larger = [
        text[:place].replace(".", r"\.")
        + (f"[{int(digit) + 1}-9]" + "".join("." if c != "." else r"\." for c in text[place + 1 :]))
        for place, digit in enumerate(text)
        if digit not in ".9"
    ]
    return f"^(?:{'|'.join((text.replace('.', chr(92) + '.'), *larger, longer))})$"
