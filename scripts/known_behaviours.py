"""The page of behaviours that differ between the proxies, or that users ask about.

Each has tests, which prove the values for both proxies.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

TABLE = Path(__file__).with_name("known_behaviours.yaml")

INTRODUCTION = """\
These are behaviours that users ask about, with the results on NGINX and on Envoy. The tests in the
last column prove them. A test checks that each of these tests exists."""


class KnownBehaviour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A behaviour on each proxy."""

    subject: str
    nginx: str
    envoy: str
    tests: tuple[str, ...]
    """Test files below ``tests``, most with ``::`` and the name of a function."""


def known_behaviours() -> dict[str, tuple[KnownBehaviour, ...]]:
    """Return the behaviours by title of their section."""
    return msgspec.yaml.decode(TABLE.read_bytes(), type=dict[str, tuple[KnownBehaviour, ...]])


def page(note: str) -> str:
    """Return the page."""
    lines = ["# Differences and known behaviours", "", note, "", INTRODUCTION, ""]
    for title, behaviours in known_behaviours().items():
        lines += [
            f"## {title}",
            "",
            "| subject | NGINX | Envoy | tests |",
            "| --- | --- | --- | --- |",
        ]
        for item in behaviours:
            tests = ", ".join(f"`{test}`" for test in item.tests)
            lines.append(f"| {item.subject} | {item.nginx} | {item.envoy} | {tests} |")
        lines.append("")
    return "\n".join(lines)
