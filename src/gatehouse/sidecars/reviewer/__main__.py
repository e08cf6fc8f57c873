"""``python -m gatehouse.sidecars.reviewer DIRECTORY SECONDS``: where, and how long it lingers."""

import sys
from pathlib import Path

import uvloop

from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.lifecycle import run
from gatehouse.sidecars.reviewer.server import Serving


async def main(directory: Path, linger: float) -> None:
    """Review for as long as anything needs it."""
    await run(directory, Serving(directory.parent, linger, FailureLog()))


uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2])))
