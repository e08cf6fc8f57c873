"""``python -m gatehouse.sidecars.reviewer DIRECTORY SECONDS``: socket directory and linger time."""

import sys
from pathlib import Path

import uvloop

from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.lifecycle import run
from gatehouse.sidecars.reviewer.server import ReviewServer


async def main(directory: Path, linger: float) -> None:
    """Run the reviewer until it is idle or terminated."""
    await run(directory, ReviewServer(directory.parent, linger, FailureLog()))


uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2])))
