"""``python -m gatehouse.reviewer DIRECTORY SECONDS``: where, and how long it lingers."""

import sys
from pathlib import Path

import uvloop

from gatehouse.companion.failures import Failures
from gatehouse.companion.life import run
from gatehouse.reviewer.serving import Serving


async def main(directory: Path, linger: float) -> None:
    """Review for as long as anything needs it."""
    await run(directory, Serving(directory.parent, linger, Failures()))


uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2])))
