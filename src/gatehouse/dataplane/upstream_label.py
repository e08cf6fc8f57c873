"""First line of the file of an NGINX upstream: a comment for the agent with its backend.

NGINX ignores the comment. The agent counts the endpoints of backends for metrics.
"""

from __future__ import annotations

import re

import msgspec

_PREFIX = "# gatehouse: "

_FILE = re.compile(r"gatehouse/upstreams/[^/]+\.conf")


class UpstreamLabel(msgspec.Struct, frozen=True):
    """Backend of an upstream."""

    backend: str
    """``kind/namespace/name``."""
    endpoints: str = ""
    """Path of the file with the endpoints; empty: they are ``server`` directives."""

    def comment(self) -> str:
        """Return the comment with a line end. JSON escapes line ends in names."""
        return f"{_PREFIX}{msgspec.json.encode(self).decode()}\n"


def is_upstream_file(path: str) -> bool:
    """Return whether a file of a file set may have a label."""
    return _FILE.fullmatch(path) is not None


def parse_label(content: bytes) -> UpstreamLabel | None:
    """Return the label of an upstream's file; None if it has none."""
    first = content.partition(b"\n")[0]
    if not first.startswith(_PREFIX.encode()):
        return None
    try:
        return msgspec.json.decode(first[len(_PREFIX) :], type=UpstreamLabel)
    except msgspec.DecodeError:
        return None
