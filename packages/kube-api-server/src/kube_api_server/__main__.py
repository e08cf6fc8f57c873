"""`kube-api-server`: an API server on this machine, until it is stopped."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
from pathlib import Path

import kube_api_server
from kube_api_server.controllers.definition_files import DefinitionError
from kube_api_server.extension import NO_EXTENSION, Extension
from kube_api_server.http import nonresource
from kube_api_server.storage.entries import UnavailableError
from kube_api_server.testing.local_server import LocalApiServer
from kube_base.runtime import private_files
from kube_base.runtime.logs import configure_logs


def main() -> None:
    """Serve until SIGINT or SIGTERM, and print the path of a kubeconfig once it serves."""
    options = _parser().parse_args()
    # Standard output has the kubeconfig alone, for `eval`.
    configure_logs("kube-api-server", "info", sys.stderr, as_json=False)
    extension = Extension(definitions=options.crds) if options.crds else NO_EXTENSION
    try:
        if options.directory is not None:
            directory = options.directory.absolute()
            private_files.make_private_dir(directory, marker="kubeconfig")
            # Before a second server replaces the certificates of the first.
            with private_files.locked(directory / "lock"):
                _serve(directory, extension, options.port)
        else:
            with tempfile.TemporaryDirectory(prefix="kube-api-server-") as temporary:
                _serve(Path(temporary), extension, options.port)
    except OSError as error:
        sys.exit(f"kube-api-server: {_reason(error)}")
    except (DefinitionError, UnavailableError) as error:
        sys.exit(f"kube-api-server: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kube-api-server",
        description="Serve the Kubernetes API on 127.0.0.1, without nodes and containers, and "
        "print the path of a kubeconfig. SIGINT (Ctrl-C) and SIGTERM end it.",
    )
    parser.add_argument(
        "directory",
        nargs="?",
        type=_directory,
        help="Objects, certificates and kubeconfig. Default: a new directory, removed at the end.",
    )
    parser.add_argument("--port", type=_port, default=0, help="Default: a free port.")
    parser.add_argument(
        "--crds",
        type=_existing_directory,
        metavar="DIRECTORY",
        help="CustomResourceDefinitions to install, in YAML or JSON files.",
    )
    version = f"%(prog)s {kube_api_server.__version__}, Kubernetes 1.{nonresource.MINOR}"
    parser.add_argument("--version", action="version", version=version)
    return parser


def _directory(text: str) -> Path:
    """Return the path of a directory, which may not exist. Raises ArgumentTypeError."""
    path = Path(text)
    if not text or (path.exists() and not path.is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a directory")
    return path


def _existing_directory(text: str) -> Path:
    """Return the path of a directory. Raises ArgumentTypeError."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a directory")
    return path


def _port(text: str) -> int:
    """Return a port, or 0 for a free one. Raises ArgumentTypeError."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port between 0 and 65535")
    return int(text)


def _reason(error: OSError) -> str:
    """Return the message of an error without its number."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _serve(directory: Path, extension: Extension, port: int) -> None:
    signals = {signal.SIGINT, signal.SIGTERM}
    # Threads of the server inherit the mask, so that only this one gets a signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with LocalApiServer(directory, extension, port=port) as server:
        print(f"export KUBECONFIG={server.kubeconfig}", flush=True)
        signal.sigwait(signals)


if __name__ == "__main__":
    main()
