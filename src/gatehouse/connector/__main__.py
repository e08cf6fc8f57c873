"""``python -m gatehouse.connector DIRECTORY SECONDS``: where, and how long sockets linger."""

import sys
from pathlib import Path

import uvloop

from gatehouse.companion.failures import Failures
from gatehouse.companion.life import run
from gatehouse.connector.listening import Listening


async def main(directory: Path, linger: float) -> None:
    """Connect for as long as anything needs it."""
    await run(directory, Listening(directory, linger, Failures()))


uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2])))
