"""Run of a proxy's executable that prints its version."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gatehouse.agent.options import PROBE_BINARY_SECONDS, ProxyMissingError


def probe_binary(
    path: Path, option: str, missing: type[ProxyMissingError]
) -> subprocess.CompletedProcess[str]:
    """Run an executable with an option and return what it prints.

    Raises ``missing`` if it cannot be run or does not end in time.
    """
    try:
        return subprocess.run(
            [path, option],
            capture_output=True,
            text=True,
            timeout=PROBE_BINARY_SECONDS,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise missing(f"{path} cannot be run: {error}") from error
