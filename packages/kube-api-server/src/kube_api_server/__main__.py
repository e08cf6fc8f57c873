"""`kube-api-server`: an API server on this machine, until it is stopped."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

import structlog

from kube_api_server.testing.local_server import LocalApiServer
from kube_base.runtime import private_files


def main() -> None:
    """Serve until SIGINT or SIGTERM, and print the path of a kubeconfig once it serves."""
    parser = argparse.ArgumentParser(
        prog="kube-api-server",
        description="Serve the Kubernetes API on 127.0.0.1, without nodes and containers.",
    )
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        help="Objects, certificates and kubeconfig. Default: a new directory, removed at the end.",
    )
    parser.add_argument("--port", type=int, default=0, help="Default: a free port.")
    options = parser.parse_args()
    # Standard output has the kubeconfig alone, for `eval`.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        if options.directory is not None:
            directory = options.directory.absolute()
            private_files.make_private_dir(directory, marker="kubeconfig")
            # Before a second server replaces the certificates of the first.
            with private_files.locked(directory / "lock"):
                _serve(directory, options.port)
        else:
            with tempfile.TemporaryDirectory(prefix="kube-api-server-") as temporary:
                _serve(Path(temporary), options.port)
    except (OSError, OverflowError) as error:
        sys.exit(f"kube-api-server: {error}")


def _serve(directory: Path, port: int) -> None:
    signals = {signal.SIGINT, signal.SIGTERM}
    # Threads of the server inherit the mask, so that only this one gets a signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with LocalApiServer(directory, port=port) as server:
        print(f"export KUBECONFIG={server.kubeconfig}", flush=True)
        signal.sigwait(signals)


if __name__ == "__main__":
    main()
