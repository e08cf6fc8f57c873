"""Origins of IR that tests write by hand."""

from __future__ import annotations

from gatehouse.dataplane.origin import Origin


def match_of(name: str) -> Origin:
    """Return the origin of an IR route by its name, such as ``ns/r/0/1``."""
    namespace, route, rule, match = name.split("/")
    return Origin("HTTPRoute", namespace, route, f"rules[{rule}].matches[{match}]")
