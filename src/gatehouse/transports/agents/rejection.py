"""Recognition of NGINX's rejections in the error texts of NGINX Agent, which have no codes."""

from __future__ import annotations

import re

_NGINX = re.compile(
    r"\[(?:emerg|alert|crit)\]|config test failed|error running nginx"
    r"|errors found during nginx reload",
    re.IGNORECASE,
)
"""NGINX's own messages, then the texts of NGINX Agent v3 and v2 for an NGINX that ended without
one."""


def quotes_nginx(error: str) -> bool:
    """Return whether an agent failed because of NGINX, not to fetch or store the files."""
    return _NGINX.search(error) is not None
