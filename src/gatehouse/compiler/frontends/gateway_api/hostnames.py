"""Hostnames: exact, wildcard (``*.example.com``, any depth) or empty for all. No I/O."""

from __future__ import annotations

from collections.abc import Iterator


def hostname_covers(pattern: str, name: str) -> bool:
    """Return whether ``pattern`` matches every name that ``name`` matches."""
    if not pattern or pattern == name:
        return True
    if not pattern.startswith("*.") or not name:
        return False
    return name.removeprefix("*").endswith(pattern[1:]) and name != pattern[2:]


def intersect(listener: str, route: str) -> str | None:
    """Return the hostname of all names that both match; None if there are none."""
    if hostname_covers(listener, route):
        return route
    if hostname_covers(route, listener):
        return listener
    return None


def wider(name: str) -> Iterator[str]:
    """Yield the hostnames that match all names of ``name`` and more."""
    labels = name.removeprefix("*.").split(".") if name else []
    for number in range(1, len(labels)):
        yield f"*.{'.'.join(labels[number:])}"
    if name:
        yield ""


def specificity(hostname: str) -> tuple[bool, int]:
    """Return a sort key (ascending): empty, then wildcards, then exact; shorter before longer."""
    return (bool(hostname) and not hostname.startswith("*."), len(hostname))
