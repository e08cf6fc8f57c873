"""Selection of what follows a failed attempt: names of locations, and the maps behind them.

A request whose method is not idempotent is sent again only if no backend has received it, or if a
backend has answered with one of the codes. NGINX counts the bytes of a request that it has sent,
without those of a TLS handshake, and has the time of a response's header only if there was one.

With a timeout of the request, no wait of a location is longer than the time in its name. NGINX
chooses one at each retry and at each pause, so that the first wait of the last of them ends at most
an eighth of the timeout too late.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from gatehouse.compiler.backends.nginx import functions, names
from gatehouse.compiler.backends.nginx.directives import Directive, DirectiveNode
from gatehouse.compiler.backends.nginx.traffic_settings import format_time
from gatehouse.compiler.ir import http as ir

_PARTS = 8
"""Number of parts of a timeout."""

FAILURES = (502, 504)
"""Status codes of NGINX for a failed connection and a timeout."""

_LAST_ATTEMPT = "$upstream_status/$upstream_header_time/$upstream_bytes_sent"
"""Result of the last attempt. The variables list those of all attempts: ``502 : 503``."""


class RetrySelection(msgspec.Struct, frozen=True):
    """Locations of the retries of one route. Routes with the same settings share the maps."""

    prefix: str
    """Name of the locations, without the ends that distinguish them."""
    seconds: float
    """Timeout of the request; 0 without one."""
    attempt_seconds: float
    """Timeout of each attempt; 0 without one."""
    retries: int
    """Maximum number of retries."""
    pause_seconds: float = 0.0
    """Pause before each retry; 0 without one."""
    codes: tuple[int, ...] = ()
    """Status codes of backends after which any request is sent again."""
    limit_status: int = 0
    """Status code of NGINX for a request above a rate limit, if it is one of the codes; else 0."""

    @property
    def onward(self) -> str:
        """The location of the next attempt, as a token that NGINX expands."""
        return f'"{self.prefix}_{self._attempt}"'

    @property
    def after_failure(self) -> str:
        """The location of the next attempt, of the pause before it, or of the failure."""
        return f'"{self.prefix}_${{{self._next}}}"'

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

    @property
    def failures(self) -> list[int]:
        """The status codes of NGINX for requests that are not sent again."""
        return sorted({*FAILURES, self.limit_status} - {0})

    def failure(self, status: int) -> str:
        """Return the location of a request that is not sent again, for a status of NGINX."""
        return f"{self.prefix}_{status}"

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

        return list(map(limit, nodes)) if self.seconds else list(nodes)

    def maps(self) -> tuple[Directive, ...]:
        """Return the maps, evaluated after each failure."""
        maps = [self._following()]
        if self.retries > 1:
            # The statuses of all attempts before: "500 : 502". None: NGINX itself has answered.
            more = rf"~^[^:]+(?: : [^:]*){{0,{self.retries - 2}}}$"
            rows = ((more, "more"), ("default", "last"))
            maps.append(functions.function('"$upstream_status"', self._phase, *rows))
        if self.seconds:
            maps.append(self._by_time(self._left, {part: str(part) for part in self.steps}))
        if self.seconds and self.pause_seconds:
            # When the timeout is over, the last attempt answers without a pause.
            ends = {0: "last_0"} | {part: f"paused_{part}" for part in self._paused_parts}
            maps.append(self._by_time(self._pause, ends))
        return tuple(maps)

    def _following(self) -> Directive:
        """Define the end of the name of the location that follows a failure."""
        again = rf"~^(?:{'|'.join(ir.IDEMPOTENT_METHODS)}) |[ /]0?$"
        if self.codes:
            again += rf"| (?:{'|'.join(map(str, self.codes))})/(?:[^/]* )?[\d.]+/"
        rows = [(again, f'"{self._retry}"'), ("~ 504/", "504"), ("default", "502")]
        request = "$request_method"
        if self.limit_status:
            # NGINX checks the limits of a request once: a retry would pass.
            request += " $limit_req_status"
            rows.insert(0, ("~ REJECTED ", str(self.limit_status)))
        return functions.function(f'"{request} {_LAST_ATTEMPT}"', self._next, *rows)

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
        """Return the numbers of parts that are shorter than a time; none without a timeout."""
        if not self.seconds:
            return ()
        return tuple(part for part in range(_PARTS) if self._seconds_of(part) < seconds)

    def _seconds_of(self, parts: int) -> float:
        return self.seconds * parts / _PARTS if self.seconds else math.inf

    @property
    def _retry(self) -> str:
        """The end of the name of the location of a retry or of the pause before it."""
        if not self.pause_seconds:
            return self._attempt
        return f"${{{self._pause}}}" if self.seconds else f"paused_{_PARTS}"

    @property
    def _attempt(self) -> str:
        """The end of the name of the location of the next attempt."""
        phase = f"${{{self._phase}}}" if self.retries > 1 else "last"
        return f"{phase}_${{{self._left}}}" if self.seconds else f"{phase}_{_PARTS}"

    @property
    def _left(self) -> str:
        return names.variable("retry deadline", f"{self.seconds} {self.attempt_seconds}")

    @property
    def _pause(self) -> str:
        return names.variable("retry pause", f"{self.seconds} {self.pause_seconds}")

    @property
    def _phase(self) -> str:
        return names.variable("retry phase", str(self.retries))

    @property
    def _next(self) -> str:
        return names.variable("retry", self._retry, str(self.codes), str(self.limit_status))


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
