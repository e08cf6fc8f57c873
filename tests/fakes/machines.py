"""Network namespaces as machines, joined by one wire."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fakes import patience
from fakes.patience import SECONDS

POSSIBLE = os.geteuid() == 0 and shutil.which("ip") is not None

CUT = "need root and ip"


class Machine:
    """A network namespace; what runs on it is ended with it."""

    def __init__(self, name: str) -> None:
        self.name = f"gh-{name}-{uuid.uuid4().hex[:6]}"
        self._processes: list[subprocess.Popen[bytes]] = []
        ip("netns", "add", self.name)
        self.run("ip", "link", "set", "lo", "up")

    def enter(self, *words: str) -> list[str]:
        """Return a command that runs in this network namespace."""
        return ["nsenter", f"--net=/run/netns/{self.name}", "--", *words]

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command in this network namespace. Return its output."""
        done = subprocess.run(
            self.enter(*words), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def python(self, code: str, *words: str) -> str:
        """Run a piece of Python here."""
        return self.run(sys.executable, "-c", code, *words)

    def start(self, words: Sequence[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start a command here."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                self.enter(*words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
            )
        self._processes.append(process)
        return process

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let the calling thread be here: its sockets, and the processes that it starts."""
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
        try:
            _enter(there)
            yield
        finally:
            _enter(here)
            os.close(there)
            os.close(here)

    def socket(
        self, family: socket.AddressFamily = socket.AF_INET, kind: int = socket.SOCK_STREAM
    ) -> socket.socket:
        """Return a socket in the network namespace of this machine."""
        with self.entered():
            return socket.socket(family, kind)

    def json(self, *words: str) -> Any:
        """Run a command that prints JSON."""
        return json.loads(self.run(*words) or "[]")

    def close(self) -> None:
        """End what runs here, and the machine."""
        for word in subprocess.run(
            ["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False
        ).stdout.split():
            subprocess.run(["kill", "-9", word], check=False, stderr=subprocess.DEVNULL)
        for process in self._processes:
            process.wait(patience.SECONDS)
        ip("netns", "del", self.name)


_LIBC = ctypes.CDLL(None, use_errno=True)
_NEWNET = 0x40000000
"""CLONE_NEWNET of setns(2), which Python has from 3.12 on."""


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def resolving(file: Path, *words: str) -> list[str]:
    """Return a command that runs with ``file`` as its /etc/resolv.conf."""
    script = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(file), *words]


def ip(*words: str) -> None:
    """Run ``ip`` on this machine."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


def join(one: Machine, other: Machine, net: str = "192.0.2", net6: str = "2001:db8::") -> None:
    """Lay a wire: the first machine gets the address that ends in 1, the other the one in 2."""
    ends = [f"v{uuid.uuid4().hex[:8]}" for _ in range(2)]
    ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
    for at, (machine, end) in enumerate(zip((one, other), ends, strict=True), start=1):
        ip("link", "set", end, "netns", machine.name)
        machine.run("ip", "addr", "add", f"{net}.{at}/24", "dev", end)
        machine.run("ip", "addr", "add", f"{net6}{at}/64", "dev", end, "nodad")
        machine.run("ip", "link", "set", end, "up")
