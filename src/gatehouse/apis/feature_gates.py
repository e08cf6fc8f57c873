"""Feature gates of KubeGateway: ``Name=true|false``, separated by commas."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

KNOWN = ("CloseConnectionWhenIdle", "DenyAllRequests", "GlobalRateLimiter", "Tracing")
"""Names of the feature gates."""

TRUE = ("1", "t", "T", "true", "True", "TRUE")
FALSE = ("0", "f", "F", "false", "False", "FALSE")


class GivenGates(msgspec.Struct, frozen=True):
    """Parsed text."""

    values: Mapping[str, bool]
    """Values of the gates that the text sets validly, once or several times to the same."""
    problems: tuple[str, ...] = ()


def parse(text: str) -> GivenGates:
    """Parse feature gates. A gate with an invalid or contradictory value is a problem."""
    problems: list[str] = []
    values: dict[str, bool] = {}
    invalid: set[str] = set()
    for part in filter(str.strip, text.split(",")):
        name, _, value = (side.strip() for side in part.partition("="))
        if name not in KNOWN:
            problems.append(f"{name!r} must be one of {', '.join(KNOWN)}")
        elif value not in (*TRUE, *FALSE):
            problems.append(f"{name}={value!r} must be true or false")
            invalid.add(name)
        elif values.setdefault(name, value in TRUE) != (value in TRUE):
            problems.append(f"{name} must not be both true and false")
            invalid.add(name)
    valid = {name: value for name, value in values.items() if name not in invalid}
    return GivenGates(valid, tuple(problems))
