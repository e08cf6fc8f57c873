"""``python -m gatehouse.authenticator DIRECTORY SECONDS``: where, and how long parties linger."""

import sys
from pathlib import Path

import uvloop

from gatehouse.authenticator.serving import Serving
from gatehouse.companion.failures import Failures
from gatehouse.companion.life import run


async def main(directory: Path, linger: float) -> None:
    """Authenticate for as long as anything needs it."""
    await run(directory, Serving(directory, linger, Failures()))


uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2])))
