"""API servers and etcd as processes of their own, to be killed."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from fakes import patience
from fakes.loopback import free_port
from gatehouse.standalone import pki
from gatehouse.standalone.state_directory import State


class Process:
    """Something that can be started, killed and started again."""

    process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def ready(self) -> bool:
        raise NotImplementedError

    def start(self, log: Path | None = None) -> None:
        with (log or Path(os.devnull)).open("ab") as out:
            self.process = subprocess.Popen(self.command(), stdout=out, stderr=out)
        deadline = time.monotonic() + patience.SECONDS
        while not self.ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.command()[0]} ended with {self.process.returncode}")
            if time.monotonic() > deadline:
                raise TimeoutError(self.command()[0])
            patience.pause_thread()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(patience.SECONDS)


class ApiServer(Process):
    """`gatehouse apiserver` over a state directory, or an etcd."""

    def __init__(self, directory: Path, *options: str, storage: str = "") -> None:
        self.state = State(directory)
        directory.mkdir(exist_ok=True)
        self.state.pki.ensure()
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.storage = storage or str(self.state.database)
        self._options = options
        pair = self.state.pki.leaf(pki.APISERVER)
        self.shows = pair.cert, pair.key
        """Files of its certificate and key, from the next start on."""
        self.trusted = self.state.pki.ca().cert
        """File of the CA of that certificate."""
        self.state.write_kubeconfigs(self.url)
        self.kubeconfig = self.state.kubeconfig

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "gatehouse", "apiserver", "--storage", self.storage),
            *("--bind-address", f"127.0.0.1:{self.port}"),
            *("--tls-cert-file", str(self.shows[0]), "--tls-private-key-file", str(self.shows[1])),
            *("--client-ca-file", str(self.state.pki.ca().cert)),
            *self._options,
        ]

    def ready(self) -> bool:
        trust = ssl.create_default_context(cafile=str(self.trusted))
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", context=trust, timeout=5) as r:
                return bool(r.status == 200)
        except (OSError, urllib.error.URLError):
            return False


class Etcd(Process):
    """A single etcd."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self._peer = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"

    @staticmethod
    def binary() -> str | None:
        return shutil.which("etcd")

    def command(self) -> list[str]:
        return [
            *(self.binary() or "etcd", "--name", "one", "--data-dir", str(self.directory)),
            *("--listen-client-urls", f"http://{self.address}"),
            *("--advertise-client-urls", f"http://{self.address}"),
            *("--listen-peer-urls", f"http://127.0.0.1:{self._peer}"),
            *("--initial-advertise-peer-urls", f"http://127.0.0.1:{self._peer}"),
            *("--initial-cluster", f"one=http://127.0.0.1:{self._peer}"),
        ]

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=2) as response:
                return b"true" in response.read()
        except (OSError, urllib.error.URLError):
            return False


def environment(**more: str) -> dict[str, str]:
    """The environment of a client, with nothing of the user's own."""
    names = ("PATH", "LANG", "TMPDIR", "GOGC")
    return {**{key: os.environ[key] for key in names if key in os.environ}, **more}
