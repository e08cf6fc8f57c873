"""Commands of documentation pages."""

from __future__ import annotations

import re
from pathlib import Path


def steps_of(page: Path) -> dict[str, str]:
    """Return the shell commands of each step of a page by its heading."""
    pattern = r"^### ([^\n]+)\n(?:(?!^###).)*?^```sh\n(.+?)^```$"
    return dict(re.findall(pattern, page.read_text(), re.M | re.S))
