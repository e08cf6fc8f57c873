"""``python -m gatehouse.sidecars.authenticator DIRECTORY SECONDS``.

DIRECTORY holds the sockets; parties linger for SECONDS.
"""

import sys
from pathlib import Path

import uvloop

from gatehouse.sidecars.authenticator.server import Serving
from gatehouse.sidecars.base.failure_log import Failures
from gatehouse.sidecars.base.lifecycle import run


async def main(directory: Path, linger: float) -> None:
    """Authenticate for as long as anything needs it."""
    await run(directory, Serving(directory, linger, Failures()))


uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2])))
