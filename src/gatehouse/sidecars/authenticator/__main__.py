"""``python -m gatehouse.sidecars.authenticator DIRECTORY SECONDS``.

DIRECTORY holds the sockets; parties linger for SECONDS.
"""

import sys
from pathlib import Path

import uvloop

from gatehouse.sidecars.authenticator.server import AuthServer
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.lifecycle import run


async def main(directory: Path, linger: float) -> None:
    """Authenticate for as long as anything needs it."""
    await run(directory, AuthServer(directory, linger, FailureLog()))


uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2])))
