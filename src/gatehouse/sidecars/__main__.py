"""``python -m gatehouse.sidecars NAME DIRECTORY SECONDS``: run one sidecar.

DIRECTORY contains its sockets. What is no longer configured ends after SECONDS.
"""

import sys
from pathlib import Path

import uvloop

from gatehouse.runtime.process_imports import import_at_start
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.lifecycle import run_sidecar
from gatehouse.sidecars.base.service import SidecarService

SIDECAR_SERVICES = {
    "authenticator": ("authenticator.server", "AuthServer"),
    "picker": ("picker.server", "PoolServer"),
    "reviewer": ("reviewer.server", "ReviewServer"),
    "tls_connector": ("tls_connector.listeners", "Listeners"),
}
"""Names to module and class. A process imports its own only, to start fast and stay small."""


async def main(name: str, directory: Path, linger: float) -> None:
    """Run the sidecar `name` until it is idle or terminated."""
    module, class_name = SIDECAR_SERVICES[name]
    services = import_at_start(f"gatehouse.sidecars.{module}")
    service: SidecarService = getattr(services, class_name)(directory, linger, FailureLog())
    await run_sidecar(directory, service)


uvloop.run(main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])))
