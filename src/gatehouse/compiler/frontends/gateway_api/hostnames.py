"""Hostnames: exact, wildcard (``*.example.com``, any depth below) or empty for every name. Pure."""

from __future__ import annotations

from collections.abc import Iterator


def covers(pattern: str, name: str) -> bool:
    """Whether every name that ``name`` stands for is also one of ``pattern``'s."""
    if not pattern or pattern == name:
        return True
    if not pattern.startswith("*.") or not name:
        return False
    return name.removeprefix("*").endswith(pattern[1:]) and name != pattern[2:]


def intersect(listener: str, route: str) -> str | None:
    """Give the names that both stand for, as a hostname; None if there are none."""
    if covers(listener, route):
        return route
    if covers(route, listener):
        return listener
    return None


def wider(name: str) -> Iterator[str]:
    """Give the hostnames that stand for more names than ``name``, these included."""
    labels = name.removeprefix("*.").split(".") if name else []
    for number in range(1, len(labels)):
        yield f"*.{'.'.join(labels[number:])}"
    if name:
        yield ""


def specificity(hostname: str) -> tuple[bool, int]:
    """Order hostnames: exact before wildcard before empty, longer before shorter (ascending)."""
    return (bool(hostname) and not hostname.startswith("*."), len(hostname))
