"""``python -m gatehouse.sidecars.tls_connector DIRECTORY SECONDS``.

DIRECTORY contains the sockets; unused sockets are closed after SECONDS.
"""

import sys
from pathlib import Path

import uvloop

from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.lifecycle import run
from gatehouse.sidecars.tls_connector.listeners import Listeners


async def main(directory: Path, linger: float) -> None:
    """Run the TLS connector until it is idle or terminated."""
    await run(directory, Listeners(directory, linger, FailureLog()))


uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2])))
