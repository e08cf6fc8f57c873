"""``python -m gatehouse.sidecars.authenticator DIRECTORY SECONDS``.

DIRECTORY contains the sockets; unused parties are removed after SECONDS.
"""

import sys
from pathlib import Path

import uvloop

from gatehouse.sidecars.authenticator.server import AuthServer
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.lifecycle import run


async def main(directory: Path, linger: float) -> None:
    """Run the authenticator until it is idle or terminated."""
    await run(directory, AuthServer(directory, linger, FailureLog()))


uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2])))
